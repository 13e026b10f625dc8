// The attention stages of the forward pass: rotate, store into pages, attend, quantise.
#include <algorithm>
#include <utility>

#include "cpu/forward.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

constexpr std::uint32_t kStoreRowsPerPiece = 4;
constexpr std::uint32_t kAttentionRowsMost = 16, kAttentionRowsLeast = 4;  // of a piece
constexpr std::uint32_t kPiecesPerWorker = 4;
constexpr std::uint32_t kTablePositionsMax = 1U << 15;  // more would take long at start

// Pieces of at most so many rows.
std::size_t pieces_of(const RowBatch& batch, std::uint32_t rows) {
    std::size_t pieces = 0;
    for (const auto& run : batch.runs)
        pieces += (run.row_count + rows - 1) / rows;
    return pieces;
}

}  // namespace

KvPages Forward::kv_pages(std::uint32_t layer) const {
    KvPages pages;
    pages.type = kv_type_;
    pages.k = kv_.layer_base(layer);
    pages.v = kv_.layer_base(layer) + kv_.shape().key_bytes;
    pages.page_stride = kv_.shape().page_bytes();
    pages.kv_heads = hp_.head_count_kv;
    pages.head_dim = hp_.head_length;
    return pages;
}

// Cuts the step's attention into items of some rows, and the heads into ranges: all heads at once
// where there are rows enough to share out, else a KV head's queries, of fewer rows if need be,
// else, for one or two rows, halves of those (the larger first, so that the smaller fill the gaps).
void Forward::plan_attention(const RowBatch& batch) {
    items_.clear();
    head_ranges_.clear();
    const std::size_t pieces_wanted = std::size_t{kPiecesPerWorker} * threads_.workers();
    std::uint32_t rows = kAttentionRowsMost;
    while (rows > kAttentionRowsLeast &&
           pieces_of(batch, rows) * hp_.head_count_kv < pieces_wanted) {
        rows /= 2;
    }
    for (std::uint32_t run = 0; run < batch.runs.size(); ++run) {
        const std::uint32_t count = batch.runs[run].row_count;
        for (std::uint32_t first = 0; first < count; first += rows)
            items_.push_back({run, first, std::min(rows, count - first)});
    }
    if (items_.size() >= 2 * pieces_wanted) {
        head_ranges_.push_back({0, hp_.head_count});
        return;
    }
    const std::uint32_t group = hp_.heads_per_kv();
    const bool halves = group > 1 && items_.size() * hp_.head_count_kv < pieces_wanted;
    const std::uint32_t larger = halves ? (group + 1) / 2 : group;
    for (std::uint32_t head = 0; head < hp_.head_count; head += group) {
        head_ranges_.push_back({head, head + larger});
    }
    for (std::uint32_t head = 0; halves && head < hp_.head_count; head += group) {
        head_ranges_.push_back({head + larger, head + group});
    }
}

Forward::Rope Forward::make_rope(RopeAngles angles) const {
    const std::uint32_t positions =
        std::min({limits_.context_length, hp_.context_length, kTablePositionsMax});
    RopeTable table(angles.frequencies, positions, angles.magnitude);
    return {std::move(angles), std::move(table), {}, {}};
}

// The same cosines and sines as in the tables, for rows that stand beyond them.
void Forward::prepare_angles(const RowBatch& batch) {
    for (const Rope& rope : ropes_) {
        const auto compute = [&](std::uint32_t position, float* out) {
            if (position < rope.table.positions()) return;
            RopeTable::compute(rope.angles.frequencies, rope.angles.magnitude, position, out);
        };
        if (rope.far_angles.stride == 0) continue;
        for (std::uint32_t row = 0; row < batch.rows(); ++row) {
            const std::uint32_t position = batch.positions[row];
            compute(position, rope.far_angles.row(row));
            compute(limits_.window.position_for_sinks(position), rope.sink_angles.row(row));
        }
    }
}

const Forward::Rope* Forward::rope_of(std::uint32_t layer) const {
    switch (hp_.layers[layer].rope) {
        case model::LayerAttention::Rope::usual:
            return &ropes_.front();
        case model::LayerAttention::Rope::local:
            return &ropes_.back();
        case model::LayerAttention::Rope::none:
            return nullptr;
    }
    return nullptr;
}

// Layers with a window of their own have no sinks: what those are for, they were trained without.
model::AttentionWindow Forward::window_of(std::uint32_t layer) const {
    const std::uint32_t own = hp_.layers[layer].window;
    if (own == 0 || (limits_.window.bounded() && limits_.window.tokens <= own))
        return limits_.window;
    return {own, 0};
}

void Forward::norm_heads(std::span<const float> q_norm, std::span<const float> k_norm,
                         std::uint32_t rows) {
    const auto norm = [&](float* x, std::uint32_t length, std::span<const float> weight) {
        for (std::size_t at = 0; at < length; at += weight.size()) {
            kernels_.rms_norm(x + at, weight.data(), weight.size(), hp_.rms_epsilon, x + at);
        }
    };
    for_each_range(threads_, rows, kStoreRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t row = begin; row < end; ++row) {
                           float* const q = qkv_.row(row);
                           norm(q, hp_.query_length(), q_norm);
                           norm(q + hp_.query_length(), hp_.kv_length(), k_norm);
                       }
                   });
}

// Queries and keys lie next to each other: one call rotates the heads of both.
void Forward::rotate_row(const Rope& rope, std::uint32_t row, std::uint32_t position) {
    const RopeTable& table = rope.table;
    const auto angles = [&](std::uint32_t at, const FloatBuffer& beyond) {
        return at < table.positions() ? table.angles(at) : beyond.row(row);
    };
    float* const q = qkv_.row(row);
    if (limits_.window.sinks > 0) {
        kernels_.rope(sink_queries_.row(row), hp_.head_count, hp_.head_length,
                      angles(limits_.window.position_for_sinks(position), rope.sink_angles),
                      table.pairs());
    }
    kernels_.rope(q, hp_.head_count + hp_.head_count_kv, hp_.head_length,
                  angles(position, rope.far_angles), table.pairs());
}

void Forward::rotate_and_store(std::uint32_t layer, const RowBatch& batch) {
    const KvPages kv = kv_pages(layer);
    const Rope* const rope = rope_of(layer);
    for_each_range(threads_, batch.rows(), kStoreRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t row = begin; row < end; ++row) {
                           const std::uint32_t position = batch.positions[row];
                           const float* const k = qkv_.row(row) + hp_.query_length();
                           if (limits_.window.sinks > 0)
                               std::copy_n(qkv_.row(row), hp_.query_length(),
                                           sink_queries_.row(row));
                           if (rope != nullptr) rotate_row(*rope, row, position);
                           kernels_.store_kv(kv, batch.pages[row], position % model::kPageTokens, k,
                                             k + hp_.kv_length());
                       }
                   });
}

void Forward::attend(std::uint32_t layer, const RowBatch& batch) {
    const auto items = static_cast<std::uint32_t>(items_.size());
    const auto ranges = static_cast<std::uint32_t>(head_ranges_.size());
    const bool quantised = !is_float(model_.layers()[layer].attention_output.format);
    // A head that is whole blocks is quantised by who computed it.
    const bool otherwise = attend_otherwise(layer, batch);
    const bool by_head = quantised && hp_.head_length % block_columns == 0 && !otherwise;
    const std::uint32_t pieces = otherwise ? 0 : items * ranges;
    threads_.run(pieces, [&](std::uint32_t piece, std::uint32_t worker) {
        // Backwards: the last rows of a prompt see most, and long pieces should not come last.
        attend_piece(layer, batch, items_[items - 1 - piece % items], head_ranges_[piece / items],
                     by_head, scratch_[worker].attention.data());
    });
    if (!quantised || by_head) return;
    for_each_range(threads_, batch.rows(), kStoreRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t row = begin; row < end; ++row) {
                           kernels_.quantize(attended_.floats.row(row), attended_.quantized, row);
                       }
                   });
}

bool Forward::attend_otherwise(std::uint32_t layer, const RowBatch& batch) {
    if (!attend_) return false;
    std::vector<AttentionPart> runs;
    for (std::uint32_t run = 0; run < batch.runs.size(); ++run)
        runs.push_back(attention_part(layer, batch, {run, 0, batch.runs[run].row_count}));
    return attend_(threads_, runs);
}

// All heads of an item, without scratch.
AttentionPart Forward::attention_part(std::uint32_t layer, const RowBatch& batch,
                                      const AttentionItem& item) const {
    const model::AttentionWindow window = window_of(layer);
    const RowRun& run = batch.runs[item.run];
    const std::uint32_t row_begin = run.row_begin + item.first;
    AttentionPart part;
    part.kv = kv_pages(layer);
    part.pages = run.pages;
    part.position = run.position + item.first;
    part.rows = item.rows;
    part.window = window.tokens;
    part.sinks = window.sinks;
    part.q = qkv_.row(row_begin);
    part.q_stride = qkv_.stride;
    if (part.sinks > 0) {
        part.q_sinks = sink_queries_.row(row_begin);
        part.q_sinks_stride = sink_queries_.stride;
    }
    part.out = attended_.floats.row(row_begin);
    part.out_stride = attended_.floats.stride;
    part.heads = hp_.head_count;
    part.head_begin = 0;
    part.head_end = hp_.head_count;
    part.scale = hp_.attention_scale;
    part.softcap = hp_.attention_softcap;
    return part;
}

void Forward::attend_piece(std::uint32_t layer, const RowBatch& batch, const AttentionItem& item,
                           HeadRange heads, bool quantise, float* scratch) {
    AttentionPart part = attention_part(layer, batch, item);
    part.head_begin = heads.begin;
    part.head_end = heads.end;
    part.scratch = scratch;
    kernels_.attention(part);
    if (!quantise) return;
    const std::uint32_t row_begin = batch.runs[item.run].row_begin + item.first;
    const std::size_t column = std::size_t{heads.begin} * hp_.head_length;
    const std::size_t columns = std::size_t{heads.end - heads.begin} * hp_.head_length;
    for (std::uint32_t row = row_begin; row < row_begin + item.rows; ++row) {
        kernels_.quantize(attended_.floats.row(row) + column,
                          attended_.quantized.tile(row, column / block_columns, columns),
                          row % tile_rows);
    }
}

}  // namespace troupe::cpu
