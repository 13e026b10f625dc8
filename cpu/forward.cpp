#include "cpu/forward.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cpu/work_grid.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

constexpr std::uint32_t kPanelsPerPieceMax = 64;
constexpr std::uint32_t kFfnPanelsMax = 8;  // of gate and up each, in one piece
constexpr std::uint32_t kNormRowsPerPiece = 8;
constexpr std::uint32_t kEmbedRowsPerPiece = 16;

bool is_quantised(PanelFormat format) {
    return format != PanelFormat::f32;
}

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
      rope_frequencies_(rope_frequencies(hp_.rope_dimension_count, hp_.rope_freq_base)),
      rope_(rope_frequencies_, std::min(limits.context_length, hp_.context_length)),
      attention_scale_(1.0F / std::sqrt(static_cast<float>(hp_.head_length))) {}

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
    take(ffn_, Activations::allocate(rows, hp_.feed_forward_length));
    if (limits_.window.bounded()) {
        take(far_angles_, FloatBuffer::allocate(rows, 2 * rope_.pairs()));
        take(sink_queries_, FloatBuffer::allocate(rows, hp_.query_length()));
    }
    scratch_.resize(threads_.workers());
    const std::size_t attention_floats = attention_scratch_floats(
        limits_.context_length, hp_.head_length, limits_.window.tokens, limits_.window.sinks);
    for (Scratch& scratch : scratch_) {
        take(scratch.gate,
             FloatBuffer::allocate(ProductGrid::kRowStep, kFfnPanelsMax * panel_rows));
        take(scratch.up, FloatBuffer::allocate(ProductGrid::kRowStep, kFfnPanelsMax * panel_rows));
        take(scratch.attention, FloatBuffer::allocate(1, attention_floats));
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
        attention_block(layer, batch);
        ffn_block(layer, batch.rows());
        tap("out", layer, x_.data(), batch.rows(), hp_.embedding_length, x_.stride);
    }
}

void Forward::embed(const RowBatch& batch) {
    for_each_range(threads_, batch.rows(), kEmbedRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t row = begin; row < end; ++row) {
                           model_.embed(batch.tokens[row], {x_.row(row), hp_.embedding_length});
                       }
                   });
    tap("embd", 0, x_.data(), batch.rows(), hp_.embedding_length, x_.stride);
}

// x += W_o attention(rope(W_qkv norm(x)))
void Forward::attention_block(std::uint32_t layer, const RowBatch& batch) {
    const PackedLayer& weights = model_.layers()[layer];
    const std::uint32_t rows = batch.rows();
    const float* const k = qkv_.data() + hp_.query_length();
    normalise(weights.attention_norm, weights.qkv, rows);
    tap("attn-norm", layer, normed_.floats.data(), rows, hp_.embedding_length,
        normed_.floats.stride);
    multiply(weights.qkv, normed_, rows, qkv_.data(), qkv_.stride, Accumulate::store);
    tap("q", layer, qkv_.data(), rows, hp_.query_length(), qkv_.stride);
    tap("k", layer, k, rows, hp_.kv_length(), qkv_.stride);
    tap("v", layer, k + hp_.kv_length(), rows, hp_.kv_length(), qkv_.stride);
    rotate_and_store(layer, batch);
    tap("q-rope", layer, qkv_.data(), rows, hp_.query_length(), qkv_.stride);
    tap("k-rope", layer, k, rows, hp_.kv_length(), qkv_.stride);
    attend(layer, batch);
    tap("attn", layer, attended_.floats.data(), rows, hp_.query_length(), attended_.floats.stride);
    multiply(weights.attention_output, attended_, rows, x_.data(), x_.stride, Accumulate::add);
    tap("ffn-inp", layer, x_.data(), rows, hp_.embedding_length, x_.stride);
}

// x += W_down (silu(W_gate norm(x)) * (W_up norm(x)))
void Forward::ffn_block(std::uint32_t layer, std::uint32_t rows) {
    const PackedLayer& weights = model_.layers()[layer];
    normalise(weights.ffn_norm, weights.gate, rows);
    tap("ffn-norm", layer, normed_.floats.data(), rows, hp_.embedding_length,
        normed_.floats.stride);
    gate_up(weights, rows);
    tap("ffn-act", layer, ffn_.floats.data(), rows, hp_.feed_forward_length, ffn_.floats.stride);
    multiply(weights.down, ffn_, rows, x_.data(), x_.stride, Accumulate::add);
}

// Norms all rows into the form that the next product reads.
void Forward::normalise(std::span<const float> weight, const PackedMatrix& consumer,
                        std::uint32_t rows) {
    for_each_range(threads_, rows, kNormRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t row = begin; row < end; ++row) {
                           normalise_row(x_.row(row), weight, consumer, row);
                       }
                   });
}

void Forward::normalise_row(const float* x, std::span<const float> weight,
                            const PackedMatrix& consumer, std::uint32_t row) {
    if (is_quantised(consumer.format)) {
        QuantizedRows out = normed_.quantized;
        out.outlier_ratio = consumer.outlier_ratio;
        kernels_.rms_norm_quantize(x, weight.data(), hp_.rms_epsilon, out, row);
    } else {
        kernels_.rms_norm(x, weight.data(), weight.size(), hp_.rms_epsilon,
                          normed_.floats.row(row));
    }
}

void Forward::product(const PackedMatrix& w, const Activations& in, const MatmulPart& part) const {
    if (is_quantised(w.format)) {
        kernels_.matmul_quantized(w, in.quantized, part);
    } else {
        kernels_.matmul_float(w, {in.floats.data(), in.floats.stride}, part);
    }
}

void Forward::multiply(const PackedMatrix& w, const Activations& in, std::uint32_t rows, float* out,
                       std::size_t out_stride, Accumulate mode) {
    const ProductGrid grid(w.panels(), rows, threads_.workers(), kPanelsPerPieceMax);
    threads_.run(grid.pieces(), [&](std::uint32_t index, std::uint32_t) {
        const ProductPiece piece = grid[index];
        product(w, in,
                {piece.panel_begin, piece.panel_end, piece.row_begin, piece.row_end, out,
                 out_stride, mode});
    });
}

void Forward::gate_up(const PackedLayer& layer, std::uint32_t rows) {
    const ProductGrid grid(layer.gate.panels(), rows, threads_.workers(), kFfnPanelsMax);
    threads_.run(grid.pieces(), [&](std::uint32_t index, std::uint32_t worker) {
        gate_up_piece(layer, grid[index], scratch_[worker]);
    });
}

// Gate and up of the same columns meet in the worker's scratch, where they are still in cache when
// they become activations.
void Forward::gate_up_piece(const PackedLayer& layer, const ProductPiece& piece,
                            const Scratch& scratch) {
    const PackedMatrix gate = panels_of(layer.gate, piece.panel_begin, piece.panel_end);
    const PackedMatrix up = panels_of(layer.up, piece.panel_begin, piece.panel_end);
    const std::size_t rows = piece.row_end - piece.row_begin;
    const std::size_t column_begin = piece.panel_begin * panel_rows;
    const std::size_t stride = scratch.gate.stride;
    MatmulPart part{0, gate.panels(), 0, rows, scratch.gate.data(), stride, Accumulate::store};
    MatmulPart up_part = part;
    up_part.out = scratch.up.data();
    if (is_quantised(gate.format)) {
        const QuantizedRows in = rows_from(normed_.quantized, piece.row_begin);
        kernels_.matmul_quantized(gate, in, part);
        kernels_.matmul_quantized(up, in, up_part);
    } else {
        const FloatRows in{normed_.floats.row(piece.row_begin), normed_.floats.stride};
        kernels_.matmul_float(gate, in, part);
        kernels_.matmul_float(up, in, up_part);
    }
    for (std::size_t i = 0; i < rows; ++i) {
        const std::size_t row = piece.row_begin + i;
        const float* const g = scratch.gate.row(i);
        const float* const u = scratch.up.row(i);
        if (is_quantised(layer.down.format)) {
            kernels_.silu_mul_quantize(
                g, u, ffn_.quantized.tile(row, column_begin / block_columns, gate.rows),
                row % tile_rows);
        } else {
            kernels_.silu_mul(g, u, gate.rows, ffn_.floats.row(row) + column_begin);
        }
    }
}

void Forward::score(std::span<const std::uint32_t> rows, float* out) {
    TROUPE_ASSERT(rows.size() <= limits_.score_rows_max);
    const auto count = static_cast<std::uint32_t>(rows.size());
    const PackedMatrix& w = model_.output();
    for_each_range(threads_, count, kNormRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t i = begin; i < end; ++i) {
                           normalise_row(x_.row(rows[i]), model_.output_norm(), w, i);
                       }
                   });
    tap("final-norm", 0, normed_.floats.data(), count, hp_.embedding_length, normed_.floats.stride);
    multiply(w, normed_, count, out, w.rows, Accumulate::store);
}

void Forward::tap(std::string_view name, std::uint32_t layer, const float* values, std::size_t rows,
                  std::size_t columns, std::size_t stride) const {
    if (tap_) tap_({name, layer, values, rows, columns, stride});
}

}  // namespace troupe::cpu
