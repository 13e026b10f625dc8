// One block of the model over one step's rows, as the operations that papers name: what the graphs
// (graph_*.cpp) are written in. Each does its work before it returns; x is the residual stream, a
// row for each token, and n the input of the products that come next.
#pragma once

#include <cstdint>

#include "cpu/forward.hpp"
#include "cpu/row_batch.hpp"

namespace troupe::cpu {

class BlockPass {
 public:
    BlockPass(Forward& forward, std::uint32_t layer, const RowBatch& batch)
        : forward_(forward),
          weights_(forward.model_.layers()[layer]),
          layer_(layer),
          batch_(batch) {}

    // n = norm(x), or x itself, for queries, keys and values.
    void norm_attention_input();
    void take_attention_input();

    // q, k, v = W n, plus a bias if there is one.
    void project_queries_keys_values();

    // q = norm(q), k = norm(k): of each head, or of all heads of a row at once.
    void norm_queries_and_keys();

    // Rotates q and k by their positions, if this layer does that, and stores k and v in the cache.
    void rotate_and_store();

    // a = softmax(q k^T) v over what the row may look at.
    void attend();

    // x += W_o a, or norm(W_o a).
    void add_attention();
    void add_normed_attention();

    // n = norm(x), or x itself, for gate and up.
    void norm_feed_forward_input();
    void take_feed_forward_input();

    // f = gate(W_gate n) * (W_up n).
    void gate_up(Gate gate);

    // x += W_down f, or norm(W_down f).
    void add_feed_forward();
    void add_normed_feed_forward();

    // n = norm(x) for the router, whose best experts add_experts() then asks, each of norm(x):
    // x += sum of p_e W_down,e f_e, with p the softmax of their scores.
    void norm_router_input();
    void add_experts(Gate gate);

 private:
    [[nodiscard]] std::uint32_t rows() const { return batch_.rows(); }
    void tap_input(std::string_view name) const;

    Forward& forward_;
    const PackedLayer& weights_;
    const std::uint32_t layer_;
    const RowBatch& batch_;
};

}  // namespace troupe::cpu
