// Attention over paged keys and values, for rows that decode and rows of prompts alike: in float32
// (attention.cu), or on tensor units (half_attention.cu).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gpu/kernels/kv_pages.hpp"

namespace troupe::gpu {

// Positions of a tile (a lane each; tensor units have tiles of their own) and of a split. Both
// begin at absolute positions, so what a row adds up, and in which order, follows from its own
// position alone.
inline constexpr std::uint32_t kTileTokens = 32;
inline constexpr std::uint32_t kSplitTokens = 256;

inline constexpr std::uint32_t kHeadLengthMax = 256;
inline constexpr std::uint32_t kHeadsPerKvMax = 32;

// The positions that a row sees: [0, sinks_end) and [window_begin, end).
struct SeenPositions {
    std::uint32_t sinks_end, window_begin, end;

    [[nodiscard]] constexpr bool contains(std::uint32_t position) const {
        return position < sinks_end || (position >= window_begin && position < end);
    }
    // All of [begin, end_of_range), which is not nothing.
    [[nodiscard]] constexpr bool contains_all(std::uint32_t begin,
                                              std::uint32_t end_of_range) const {
        return end_of_range <= sinks_end || (begin >= window_begin && end_of_range <= end);
    }
    // The first block of `size` positions, from block `from` on, that holds any of them, if it is
    // not beyond the end.
    [[nodiscard]] constexpr std::uint32_t next_block(std::uint32_t from, std::uint32_t size) const {
        if (from * size < sinks_end) return from;
        const std::uint32_t first = window_begin / size;
        return from > first ? from : first;
    }
};

// Without a window (0 tokens) a row sees all up to its own position; else the last `window` of
// these, and the first `sinks`.
[[nodiscard]] constexpr SeenPositions seen_positions(std::uint32_t position, std::uint32_t window,
                                                     std::uint32_t sinks) {
    const std::uint32_t end = position + 1;
    const std::uint32_t sinks_end = sinks < end ? sinks : end;
    const bool bounded = window > 0 && end > window + sinks_end;
    return {sinks_end, bounded ? end - window : sinks_end, end};
}

// What any of `rows` rows sees, the first of which is at `position`.
[[nodiscard]] constexpr SeenPositions seen_by_rows(std::uint32_t position, std::uint32_t rows,
                                                   std::uint32_t window, std::uint32_t sinks) {
    const SeenPositions last = seen_positions(position + rows - 1, window, sinks);
    return {last.sinks_end, seen_positions(position, window, sinks).window_begin, last.end};
}

// Consecutive rows of a sequence attend to what they see in the whole splits that this item covers.
// Either these are all, and the results are final; or it is one, and the states are stored, that of
// the first row as partial number `partial`, to be merged. Both ways give the same bits, and so do
// any rows that share an item: who is cut up, and where, is a matter of speed alone. An item of no
// splits, and a merge of no partials, only fill up a step.
struct AttentionItem {
    std::uint32_t row;
    RowPlace place;  // of the first row
    std::uint32_t row_count;
    std::uint32_t split_begin, split_end;
    std::int32_t partial;          // -1: none
    std::uint32_t partial_stride;  // from a row's partial to the next row's
};

// How many rows an item may have. On tensor units a query is a row and a head, and a block takes
// the heads that share a key: of few rows as many as a product has, or, in a prompt, as its warps
// hold.
struct ItemRows {
    std::uint32_t narrow = 1, wide = 1;
};
[[nodiscard]] constexpr std::uint32_t narrow_queries(std::uint32_t heads_per_kv) {
    return heads_per_kv > 16 ? 32 : 16;
}
[[nodiscard]] constexpr std::uint32_t wide_queries(std::uint32_t head_length) {
    return head_length > 128 ? 32 : 64;
}
[[nodiscard]] constexpr ItemRows item_rows(std::uint32_t heads_per_kv, std::uint32_t head_length) {
    return {narrow_queries(heads_per_kv) / heads_per_kv, wide_queries(head_length) / heads_per_kv};
}

// The states of a row's splits, in order; empty where the row sees nothing of one.
struct AttentionMerge {
    std::uint32_t row;
    std::uint32_t partial_begin, partial_count;
};

// softmax(q k^T * scale) v for each row and head.
struct Attention {
    const float* q;        // [rows][q_stride]: [heads][head_length]
    const float* q_sinks;  // [rows][heads][head_length], rotated to look at sinks; null: none
    float* out;            // [rows][out_stride]: likewise
    KvPages kv;
    const AttentionItem* items;       // [item_count], of at most ItemRows::narrow rows
    const AttentionItem* wide_items;  // [wide_count], of at most ItemRows::wide
    const AttentionMerge* merges;     // [merge_count]
    float* partials;                  // [][heads][maximum, sum, head_length values]
    std::uint32_t item_count, wide_count, merge_count, q_stride, out_stride, heads;
    std::uint32_t window, sinks;  // as for seen_positions()
    float scale;
    bool in_halves;  // on tensor units
};
void attention_truth(const Attention& p);  // by `items`, whose rows are all rows
// In float32 items have one row each, and none is wide. In halves heads are whole groups of eight
// elements long.
void attention(const Attention& p, cudaStream_t stream);
void half_attention(const Attention& p, cudaStream_t stream);  // all but the merges

[[nodiscard]] constexpr std::size_t partial_floats(std::uint32_t heads, std::uint32_t head_length) {
    return std::size_t{heads} * (head_length + 2);
}

}  // namespace troupe::gpu
