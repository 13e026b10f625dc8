#include "cpu/forward.hpp"

#include <algorithm>
#include <utility>

#include "cpu/block_pass.hpp"
#include "cpu/graph.hpp"
#include "cpu/work_grid.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

constexpr std::uint32_t kPanelsPerPieceMax = 64;
constexpr std::uint32_t kFfnPanelsMax = 8;  // of gate and up each, in one piece
constexpr std::uint32_t kNormRowsPerPiece = 8;
constexpr std::uint32_t kEmbedRowsPerPiece = 16;

// Rows [begin, ...) as rows from 0; `begin` is a whole number of tiles.
QuantizedRows rows_from(const QuantizedRows& rows, std::size_t begin) {
    return rows.tile(begin, 0, rows.columns);
}

}  // namespace

Forward::Forward(const PackedModel& model, const Kernels& kernels, KvType kv_type, KvPool& kv,
                 ComputeThreads& threads, const Limits& limits)
    : model_(model),
      hp_(model.hyperparameters()),
      kernels_(kernels),
      kv_type_(kv_type),
      kv_(kv),
      threads_(threads),
      limits_(limits),
      block_(block_function(hp_.graph)) {
    ropes_.push_back(make_rope(rope_angles(hp_, model.rope_factors(limits.context_length))));
    if (hp_.rope_freq_base_local > 0) ropes_.push_back(make_rope(local_rope_angles(hp_)));
}

Result<std::unique_ptr<Forward>> Forward::create(const PackedModel& model, const Kernels& kernels,
                                                 KvType kv_type, KvPool& kv,
                                                 ComputeThreads& threads, const Limits& limits) {
    std::unique_ptr<Forward> forward(new Forward(model, kernels, kv_type, kv, threads, limits));
    if (Result<> allocated = forward->allocate(); !allocated) return allocated.error();
    return forward;
}

Result<> Forward::allocate() {
    const std::size_t rows = std::max(limits_.rows_max, limits_.score_rows_max);
    Result<> result;
    const auto take = [&](auto& target, auto&& buffer) {
        if (buffer && result) {
            target = std::move(*buffer);
        } else if (result) {
            result = buffer.error();
        }
    };
    take(x_, FloatBuffer::allocate(rows, hp_.embedding_length));
    take(normed_, Activations::allocate(rows, hp_.embedding_length));
    take(qkv_, FloatBuffer::allocate(rows, hp_.query_length() + 2 * hp_.kv_length()));
    take(attended_, Activations::allocate(rows, hp_.query_length()));
    take(ffn_, Activations::allocate(
                   rows, std::max(hp_.feed_forward_length, hp_.expert_feed_forward_length)));
    if (limits_.window.bounded()) {
        take(sink_queries_, FloatBuffer::allocate(rows, hp_.query_length()));
    }
    for (Rope& rope : ropes_) {
        if (limits_.context_length <= rope.table.positions()) continue;
        take(rope.far_angles, FloatBuffer::allocate(rows, 2 * rope.table.pairs()));
        take(rope.sink_angles, FloatBuffer::allocate(rows, 2 * rope.table.pairs()));
    }
    take(branch_, FloatBuffer::allocate(rows, hp_.embedding_length));
    if (hp_.expert_count != 0) {
        take(gathered_, Activations::allocate(rows, hp_.embedding_length));
        take(router_scores_, FloatBuffer::allocate(rows, hp_.expert_count));
        take(mixed_, FloatBuffer::allocate(rows, hp_.embedding_length));
        choices_.reserve(rows * hp_.expert_used_count);
        expert_rows_.reserve(rows);
        expert_shares_.reserve(rows);
    }
    scratch_.resize(threads_.workers());
    const std::size_t attention_floats = attention_scratch_floats(
        limits_.context_length, hp_.head_length, limits_.window.tokens, limits_.window.sinks);
    for (Scratch& scratch : scratch_) {
        take(scratch.gate,
             FloatBuffer::allocate(ProductGrid::kRowStep, kFfnPanelsMax * panel_rows));
        take(scratch.up, FloatBuffer::allocate(ProductGrid::kRowStep, kFfnPanelsMax * panel_rows));
        take(scratch.attention, FloatBuffer::allocate(1, attention_floats));
        scratch.outliers = std::make_unique<OutlierLists>();
        scratch.experts.reserve(hp_.expert_count);
    }
    items_.reserve(limits_.rows_max);
    head_ranges_.reserve(hp_.head_count);
    return result;
}

void Forward::run(const RowBatch& batch) {
    TROUPE_ASSERT(batch.rows() <= limits_.rows_max);
    if (batch.rows() == 0) return;
    plan_attention(batch);
    prepare_angles(batch);
    embed(batch);
    for (std::uint32_t layer = 0; layer < hp_.block_count; ++layer) {
        BlockPass block(*this, layer, batch);
        block_(block);
        tap("out", layer, x_.data(), batch.rows(), hp_.embedding_length, x_.stride);
    }
}

void Forward::embed(const RowBatch& batch) {
    for_each_range(threads_, batch.rows(), kEmbedRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t row = begin; row < end; ++row) {
                           const std::span x(x_.row(row), hp_.embedding_length);
                           model_.embed(batch.tokens[row], x);
                           if (hp_.embedding_scale == 1) continue;
                           for (float& value : x)
                               value *= hp_.embedding_scale;
                       }
                   });
    tap("embd", 0, x_.data(), batch.rows(), hp_.embedding_length, x_.stride);
}

// Norms all rows into the forms that the next products read.
void Forward::normalise(std::span<const float> weight, std::span<const PackedMatrix> consumers,
                        std::uint32_t rows) {
    for_each_range(threads_, rows, kNormRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t row = begin; row < end; ++row) {
                           normalise_row(x_.row(row), weight, consumers, normed_, row);
                       }
                   });
}

void Forward::normalise_row(const float* x, std::span<const float> weight,
                            std::span<const PackedMatrix> consumers, const Activations& out,
                            std::uint32_t row) {
    bool quantised = false, floats = false;
    for (const PackedMatrix& consumer : consumers) {
        if (is_float(consumer.format)) {
            if (std::exchange(floats, true)) continue;
            kernels_.rms_norm(x, weight.data(), weight.size(), hp_.rms_epsilon,
                              out.floats.row(row));
        } else if (!std::exchange(quantised, true)) {
            QuantizedRows to = out.quantized;
            to.outlier_ratio = consumer.outlier_ratio;
            kernels_.rms_norm_quantize(x, weight.data(), hp_.rms_epsilon, to, row);
        }
    }
}

// The same without a norm.
void Forward::take_input(std::span<const PackedMatrix> consumers, std::uint32_t rows) {
    for_each_range(threads_, rows, kNormRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       QuantizedRows to = normed_.quantized;
                       to.outlier_ratio = consumers.front().outlier_ratio;
                       for (std::uint32_t row = begin; row < end; ++row) {
                           std::copy_n(x_.row(row), hp_.embedding_length, normed_.floats.row(row));
                           if (to.blocks != nullptr) kernels_.quantize(x_.row(row), to, row);
                       }
                   });
}

void Forward::add_to_rows(const FloatBuffer& rows, std::span<const float> bias,
                          std::uint32_t count) {
    if (bias.empty()) return;
    for_each_range(threads_, count, kNormRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t row = begin; row < end; ++row)
                           kernels_.add(rows.row(row), bias.data(), bias.size());
                   });
}

// x += norm(W in)
void Forward::add_normed(const PackedMatrix& w, const Activations& in, std::span<const float> norm,
                         std::uint32_t rows) {
    multiply(w, in, rows, branch_.data(), branch_.stride, Accumulate::store);
    for_each_range(threads_, rows, kNormRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t row = begin; row < end; ++row) {
                           float* const branch = branch_.row(row);
                           kernels_.rms_norm(branch, norm.data(), norm.size(), hp_.rms_epsilon,
                                             branch);
                           kernels_.add(x_.row(row), branch, norm.size());
                       }
                   });
}

void Forward::product(const PackedMatrix& w, const Activations& in, const MatmulPart& part) const {
    if (!is_float(w.format)) {
        kernels_.matmul_quantized(w, in.quantized, part);
    } else {
        kernels_.matmul_float(w, {in.floats.data(), in.floats.stride}, part);
    }
}

void Forward::multiply(const PackedMatrix& w, const Activations& in, std::uint32_t rows, float* out,
                       std::size_t out_stride, Accumulate mode) {
    const ProductGrid grid(w.panels(), rows, threads_.workers(), kPanelsPerPieceMax);
    ++products_;
    threads_.run(grid.pieces(), [&](std::uint32_t index, std::uint32_t worker) {
        const ProductPiece piece = grid[index];
        product(w, in,
                {piece.panel_begin, piece.panel_end, piece.row_begin, piece.row_end, out,
                 out_stride, mode, scratch_[worker].outliers.get(), products_});
    });
}

void Forward::gate_up(const PackedExpert& w, const Activations& in, Gate gate, std::uint32_t rows) {
    const ProductGrid grid(w.gate.panels(), rows, threads_.workers(), kFfnPanelsMax);
    ++products_;
    threads_.run(grid.pieces(), [&](std::uint32_t index, std::uint32_t worker) {
        gate_up_piece(w, in, gate, grid[index], scratch_[worker]);
    });
}

// Gate and up of the same columns meet in the worker's scratch, where they are still in cache when
// they become activations.
void Forward::gate_up_piece(const PackedExpert& w, const Activations& in, Gate gate,
                            const ProductPiece& piece, const Scratch& scratch) {
    const std::size_t rows = piece.row_end - piece.row_begin;
    const std::size_t column_begin = piece.panel_begin * panel_rows;
    const auto multiply_rows = [&](const PackedMatrix& whole, const FloatBuffer& out) {
        const PackedMatrix part = panels_of(whole, piece.panel_begin, piece.panel_end);
        MatmulPart to{0, part.panels(), 0, rows, out.data(), out.stride, Accumulate::store};
        to.outliers = scratch.outliers.get();
        to.product = products_;
        if (is_float(part.format)) {
            const FloatRows from{in.floats.row(piece.row_begin), in.floats.stride};
            kernels_.matmul_float(part, from, to);
        } else {
            kernels_.matmul_quantized(part, rows_from(in.quantized, piece.row_begin), to);
        }
        return part.rows;
    };
    const std::size_t columns = multiply_rows(w.gate, scratch.gate);
    multiply_rows(w.up, scratch.up);
    const bool silu = gate == Gate::silu;
    for (std::size_t i = 0; i < rows; ++i) {
        const std::size_t row = piece.row_begin + i;
        const float* const g = scratch.gate.row(i);
        const float* const u = scratch.up.row(i);
        if (is_float(w.down.format)) {
            float* const out = ffn_.floats.row(row) + column_begin;
            (silu ? kernels_.silu_mul : kernels_.gelu_mul)(g, u, columns, out);
        } else {
            const QuantizedRows out =
                ffn_.quantized.tile(row, column_begin / block_columns, columns);
            const auto quantize = silu ? kernels_.silu_mul_quantize : kernels_.gelu_mul_quantize;
            quantize(g, u, out, row % tile_rows);
        }
    }
}

void Forward::score(std::span<const std::uint32_t> rows, float* out) {
    TROUPE_ASSERT(rows.size() <= limits_.score_rows_max);
    const auto count = static_cast<std::uint32_t>(rows.size());
    const PackedMatrix& w = model_.output();
    for_each_range(
        threads_, count, kNormRowsPerPiece,
        [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
            for (std::uint32_t i = begin; i < end; ++i) {
                normalise_row(x_.row(rows[i]), model_.output_norm(), {&w, 1}, normed_, i);
            }
        });
    tap("final-norm", 0, normed_.floats.data(), count, hp_.embedding_length, normed_.floats.stride);
    multiply(w, normed_, count, out, w.rows, Accumulate::store);
    if (hp_.output_softcap == 0) return;
    for_each_range(threads_, count, 1, [&](std::uint32_t row, std::uint32_t, std::uint32_t) {
        kernels_.soft_cap(out + std::size_t{row} * w.rows, w.rows, hp_.output_softcap);
    });
}

void Forward::tap(std::string_view name, std::uint32_t layer, const float* values, std::size_t rows,
                  std::size_t columns, std::size_t stride) const {
    if (tap_) tap_({name, layer, values, rows, columns, stride});
}

}  // namespace troupe::cpu
