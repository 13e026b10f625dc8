// The forward pass of a model over one step's rows: decode rows and slices of prompts go through
// the matrix products together, and each row's result depends on that row alone. Owns the
// activations, all memory of a step; called by the executor's thread, which shares the work with
// the compute threads. In which order a block's operations run is the graphs' (cpu/graph.hpp),
// which call them through BlockPass.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cpu/activations.hpp"
#include "cpu/compute_threads.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/rope.hpp"
#include "cpu/kv_pool.hpp"
#include "cpu/packed_model.hpp"
#include "cpu/rope_scaling.hpp"
#include "cpu/row_batch.hpp"
#include "cpu/work_grid.hpp"
#include "model/attention_window.hpp"
#include "runtime/base/result.hpp"

namespace troupe::cpu {

// What a test may look at on the way, named as the layer's part: "embd", "attn-norm", "q", "k",
// "v", "q-rope", "k-rope", "attn", "ffn-inp", "ffn-norm", "ffn-act", "out", "final-norm".
struct Tap {
    std::string_view name;
    std::uint32_t layer = 0;
    const float* values = nullptr;  // [rows][columns], rows `stride` floats apart
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::size_t stride = 0;
};
using TapFunction = std::function<void(const Tap&)>;

// For measuring other ways to compute a layer's attention: the step's runs, without scratch. False
// leaves it to the kernels.
using AttendFunction =
    std::function<bool(ComputeThreads& threads, std::span<const AttentionPart> runs)>;

class BlockPass;
using BlockFunction = void (*)(BlockPass& block);

// What the gate's values go through.
enum class Gate : std::uint8_t { silu, gelu };

class Forward {
 public:
    struct Limits {
        std::uint32_t rows_max = 0;        // in one step
        std::uint32_t score_rows_max = 0;  // in one call of score()
        std::uint32_t context_length = 0;  // positions 0 .. context_length - 1
        model::AttentionWindow window;
    };

    // All references must outlive the result. Error: out_of_memory.
    [[nodiscard]] static Result<std::unique_ptr<Forward>> create(const PackedModel& model,
                                                                 const Kernels& kernels,
                                                                 KvType kv_type, KvPool& kv,
                                                                 ComputeThreads& threads,
                                                                 const Limits& limits);

    // Takes all rows through all layers; their keys and values are stored on the way.
    void run(const RowBatch& batch);

    // Scores of some of the rows of the last run: out[i] for rows[i], [rows.size()][vocabulary].
    void score(std::span<const std::uint32_t> rows, float* out);

    // Called between the stages from now on; slows the pass down. Not for use in production.
    void set_tap(TapFunction tap) { tap_ = std::move(tap); }
    void set_attend(AttendFunction attend) { attend_ = std::move(attend); }

 private:
    friend class BlockPass;

    // The rows of one run that a piece of attention covers; all heads, or some of them.
    struct AttentionItem {
        std::uint32_t run = 0;
        std::uint32_t first = 0;  // in the run
        std::uint32_t rows = 0;
    };
    struct HeadRange {
        std::uint32_t begin = 0;
        std::uint32_t end = 0;
    };
    // One of the experts that a row asks, and its share in the sum.
    struct Choice {
        std::uint32_t expert = 0;
        float share = 0;
    };
    // A worker's own memory.
    struct Scratch {
        FloatBuffer gate;  // [rows of a piece][columns of a piece]
        FloatBuffer up;    // likewise
        FloatBuffer attention;
        std::unique_ptr<OutlierLists> outliers;
        std::vector<std::uint32_t> experts;  // all, the best first
    };

    // The angles of layers with the same kind of positions.
    struct Rope {
        RopeAngles angles;
        RopeTable table;          // of the first positions
        FloatBuffer far_angles;   // [rows][pairs][cos, sin] of positions beyond the table
        FloatBuffer sink_angles;  // likewise, where the rows' queries look at sinks
    };

    Forward(const PackedModel& model, const Kernels& kernels, KvType kv_type, KvPool& kv,
            ComputeThreads& threads, const Limits& limits);
    [[nodiscard]] Result<> allocate();
    [[nodiscard]] Rope make_rope(RopeAngles angles) const;

    void embed(const RowBatch& batch);

    void plan_attention(const RowBatch& batch);
    void normalise(std::span<const float> weight, std::span<const PackedMatrix> consumers,
                   std::uint32_t rows);
    void normalise_row(const float* x, std::span<const float> weight,
                       std::span<const PackedMatrix> consumers, const Activations& out,
                       std::uint32_t row);
    void take_input(std::span<const PackedMatrix> consumers, std::uint32_t rows);
    void add_to_rows(const FloatBuffer& rows, std::span<const float> bias, std::uint32_t count);
    void norm_heads(std::span<const float> q_norm, std::span<const float> k_norm,
                    std::uint32_t rows);
    void add_normed(const PackedMatrix& w, const Activations& in, std::span<const float> norm,
                    std::uint32_t rows);
    void multiply(const PackedMatrix& w, const Activations& in, std::uint32_t rows, float* out,
                  std::size_t out_stride, Accumulate mode);
    void prepare_angles(const RowBatch& batch);
    void rotate_row(const Rope& rope, std::uint32_t row, std::uint32_t position);
    [[nodiscard]] const Rope* rope_of(std::uint32_t layer) const;
    [[nodiscard]] model::AttentionWindow window_of(std::uint32_t layer) const;
    void rotate_and_store(std::uint32_t layer, const RowBatch& batch);
    void attend(std::uint32_t layer, const RowBatch& batch);
    [[nodiscard]] AttentionPart attention_part(std::uint32_t layer, const RowBatch& batch,
                                               const AttentionItem& item) const;
    bool attend_otherwise(std::uint32_t layer, const RowBatch& batch);
    void attend_piece(std::uint32_t layer, const RowBatch& batch, const AttentionItem& item,
                      HeadRange heads, bool quantise, float* scratch);
    void gate_up(const PackedExpert& w, const Activations& in, Gate gate, std::uint32_t rows);
    void gate_up_piece(const PackedExpert& w, const Activations& in, Gate gate,
                       const ProductPiece& piece, const Scratch& scratch);
    void add_experts(const PackedLayer& layer, Gate gate, std::uint32_t rows);
    void choose_experts(std::uint32_t row, std::vector<std::uint32_t>& order);
    void add_expert(const PackedLayer& layer, std::uint32_t expert, Gate gate);
    [[nodiscard]] KvPages kv_pages(std::uint32_t layer) const;
    void product(const PackedMatrix& w, const Activations& in, const MatmulPart& part) const;
    void tap(std::string_view name, std::uint32_t layer, const float* values, std::size_t rows,
             std::size_t columns, std::size_t stride) const;

    const PackedModel& model_;
    const model::Hyperparameters& hp_;
    const Kernels& kernels_;
    const KvType kv_type_;
    KvPool& kv_;
    ComputeThreads& threads_;
    const Limits limits_;
    const BlockFunction block_;
    std::vector<Rope> ropes_;  // of layers with Rope::usual, and, if there are any, Rope::local

    FloatBuffer x_;                 // [rows][width], the residual stream
    Activations normed_;            // [rows][width]
    FloatBuffer qkv_;               // [rows][queries, keys, values]
    Activations attended_;          // [rows][heads * head length]
    Activations ffn_;               // [rows][feed forward length]
    std::vector<Scratch> scratch_;  // [workers]
    std::uint64_t products_ = 0;    // so many have begun

    FloatBuffer sink_queries_;  // [rows][heads * head length], rotated to look at the sinks
    FloatBuffer branch_;        // [rows][width]: a branch that is normed before it is added

    // Where there are experts:
    Activations gathered_;                    // [rows][width]: an expert's input
    FloatBuffer router_scores_;               // [rows][experts]
    FloatBuffer mixed_;                       // [rows][width]: the sum over a row's experts
    std::vector<Choice> choices_;             // [rows][experts used], best first
    std::vector<std::uint32_t> expert_rows_;  // those that ask the expert at hand ...
    std::vector<float> expert_shares_;        // ... and its share in each

    std::vector<AttentionItem> items_;
    std::vector<HeadRange> head_ranges_;  // those that this step's attention is cut into
    TapFunction tap_;
    AttendFunction attend_;  // mostly none
};

}  // namespace troupe::cpu
