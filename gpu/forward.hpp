// The forward pass of a model, or of a rank's share of one, on its card: which kernels, in which
// order. Owns activations and the KV pool; belongs to the executor's thread, which only puts work
// on a stream here. Of several ranks each leaves its parts of sums where they are gathered; Ranks
// exchanges them in between.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/device_memory.hpp"
#include "gpu/device_model.hpp"
#include "gpu/kernels/attention.hpp"
#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/half_matmul.hpp"
#include "gpu/rotary_frequencies.hpp"
#include "gpu/step_arrays.hpp"
#include "model/attention_window.hpp"

namespace troupe::gpu {

class Forward {
 public:
    struct Limits {
        std::uint32_t rows_max = 0;        // in one step
        std::uint32_t score_rows_max = 0;  // in one call of score()
        std::uint32_t partials_max = 0;    // states of attention splits in one step
        std::uint32_t slots_max = 0;
        PageTableShape page_table;
        std::uint32_t angle_table_rows = 0;
        KvForm kv_form = KvForm::f16;
        model::AttentionWindow window;
        bool warpgroups = false;  // products of many rows are made by them
    };

    // The pool comes later, with allocate_pages(). Throws BackendError, as all of this does.
    Forward(const DeviceModel& model, const RotaryFrequencies& frequencies, const Limits& limits);

    [[nodiscard]] std::uint64_t page_bytes() const;  // keys and values, all layers
    void allocate_pages(std::uint32_t pages);

    // What a step changes in the books, and its copied pages; which token each row has. `pointers`
    // are of `arrays`, and must have arrived on `stream`.
    void apply_books(const StepArrays& arrays, const StepPointers& pointers, const Stream& stream);
    // Then all rows into the residual stream, and through the two blocks of each layer; of the
    // pointers only those of the layers' arrays are used.
    void embed_rows(std::uint32_t rows, const Stream& stream);
    void attention_block(std::uint32_t layer, const LayerSizes& sizes, const StepPointers& pointers,
                         const Stream& stream);
    void ffn_block(std::uint32_t layer, std::uint32_t rows, const Stream& stream);
    // Of several ranks, once a block's parts are gathered: they are added to the residual stream.
    void add_gathered(std::uint32_t rows, const Stream& stream);

    // Scores of `count` rows of the last run into scores(); `row_ids` is in device memory.
    void score(const std::uint32_t* row_ids, std::uint32_t count, const Stream& stream);
    // Of several ranks, once their columns of the scores are gathered: on the first.
    void join_gathered(std::uint32_t count, const Stream& stream);

    // What each rank fills its part of: [ranks][rows][width] after a block, and after score()
    // [ranks][count * score_part_width()].
    [[nodiscard]] float* gathered() const { return gathered_.data(); }
    [[nodiscard]] std::size_t score_part_width() const;

    // Scores and counts only where draws are made, on the first rank.
    [[nodiscard]] float* scores() const { return scores_.data(); }  // [score_rows_max][vocabulary]
    [[nodiscard]] std::int32_t* tokens() const { return tokens_.data(); }   // [rows], resolved
    [[nodiscard]] std::int32_t* drawn() const { return drawn_.data(); }     // [slots]
    [[nodiscard]] std::uint32_t* counts() const { return counts_.data(); }  // [slots][vocabulary]
    [[nodiscard]] std::uint32_t slots() const { return limits_.slots_max; }
    [[nodiscard]] std::uint32_t layers() const { return hp_.block_count; }
    [[nodiscard]] std::size_t width() const { return hp_.embedding_length; }

 private:
    void normalise(const DeviceBuffer<float>& weight, const WeightMatrix& consumer,
                   std::uint32_t rows, const std::uint32_t* row_ids, const Stream& stream);
    [[nodiscard]] HalfRows halves_for(const WeightMatrix& w, std::uint32_t columns,
                                      std::uint32_t rows) const;
    [[nodiscard]] HalfOrder order_of(std::uint32_t rows) const;  // of activations
    void multiply(const WeightMatrix& w, const DeviceBuffer<float>& x, std::uint32_t columns,
                  float* out, std::uint32_t rows, bool add, const Stream& stream);
    void multiply_to_residual(const WeightMatrix& w, const DeviceBuffer<float>& y,
                              std::uint32_t columns, std::uint32_t rows, const Stream& stream);
    [[nodiscard]] KvPages kv_pages(std::uint32_t layer) const;
    [[nodiscard]] RopeAngles rope_angles(const StepPointers& pointers) const;

    const DeviceModel& model_;
    const model::Hyperparameters& hp_;
    const RankOf rank_;
    const Limits limits_;

    DeviceBuffer<float> angles_;              // [table rows][rotated / 2][cos, sin]
    DeviceBuffer<std::uint32_t> page_table_;  // [slots][page table's width]
    DeviceBuffer<std::uint32_t> counts_;
    DeviceBuffer<std::int32_t> drawn_;
    DeviceBuffer<std::int32_t> tokens_;
    DeviceBuffer<std::byte> pool_;  // [layers][keys, values][pages][kv heads] blocks
    std::size_t layer_bytes_ = 0;   // keys, or values, of a layer

    DeviceBuffer<float> x_;               // [rows][width], the residual stream
    DeviceBuffer<float> normed_;          // [rows][width]
    DeviceBuffer<float> qkv_;             // [rows][queries, keys, values]
    DeviceBuffer<float> sinks_q_;         // [rows][queries], where there are sinks
    DeviceBuffer<float> attended_;        // [rows][heads * head length]
    DeviceBuffer<float> gate_up_;         // [rows][gate, up]
    DeviceBuffer<float> ffn_;             // [rows][feed forward length]
    DeviceBuffer<std::uint16_t> halves_;  // [padded rows][widest], what is multiplied next
    DeviceBuffer<float> unscale_;         // [rows]
    DeviceBuffer<float> partials_;
    DeviceBuffer<float> gathered_;
    DeviceBuffer<float> scores_;
};

}  // namespace troupe::gpu
