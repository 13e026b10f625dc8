// The forward pass of a llama model over one step's rows: decode rows and slices of prompts go
// through the matrix products together, and each row's result depends on that row alone. Owns the
// activations, all memory of a step; called by the executor's thread, which shares the work with
// the compute threads.
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

 private:
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
    // A worker's own memory.
    struct Scratch {
        FloatBuffer gate;  // [rows of a piece][columns of a piece]
        FloatBuffer up;    // likewise
        FloatBuffer attention;
    };

    Forward(const PackedModel& model, const Kernels& kernels, KvType kv_type, KvPool& kv,
            ComputeThreads& threads, const Limits& limits);
    [[nodiscard]] Result<> allocate();

    void embed(const RowBatch& batch);
    void attention_block(std::uint32_t layer, const RowBatch& batch);
    void ffn_block(std::uint32_t layer, std::uint32_t rows);

    void plan_attention(const RowBatch& batch);
    void normalise(std::span<const float> weight, const PackedMatrix& consumer, std::uint32_t rows);
    void normalise_row(const float* x, std::span<const float> weight, const PackedMatrix& consumer,
                       std::uint32_t row);
    void multiply(const PackedMatrix& w, const Activations& in, std::uint32_t rows, float* out,
                  std::size_t out_stride, Accumulate mode);
    void prepare_angles(const RowBatch& batch);
    void rotate_row(std::uint32_t row, std::uint32_t position);
    void rotate_and_store(std::uint32_t layer, const RowBatch& batch);
    void attend(std::uint32_t layer, const RowBatch& batch);
    void attend_piece(const KvPages& kv, const RowBatch& batch, const AttentionItem& item,
                      HeadRange heads, bool quantise, float* scratch);
    void gate_up(const PackedLayer& layer, std::uint32_t rows);
    void gate_up_piece(const PackedLayer& layer, const ProductPiece& piece, const Scratch& scratch);
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
    const std::vector<double> rope_frequencies_;
    const RopeTable rope_;  // of the positions that the model was trained for
    const float attention_scale_;

    FloatBuffer x_;                 // [rows][width], the residual stream
    Activations normed_;            // [rows][width]
    FloatBuffer qkv_;               // [rows][queries, keys, values]
    Activations attended_;          // [rows][heads * head length]
    Activations ffn_;               // [rows][feed forward length]
    std::vector<Scratch> scratch_;  // [workers]

    // Where there is a window:
    FloatBuffer far_angles_;    // [rows][pairs][cos, sin] of positions beyond rope_
    FloatBuffer sink_queries_;  // [rows][heads * head length], rotated to look at the sinks

    std::vector<AttentionItem> items_;
    std::vector<HeadRange> head_ranges_;  // those that this step's attention is cut into
    TapFunction tap_;
};

}  // namespace troupe::cpu
