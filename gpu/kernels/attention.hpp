// Attention over paged keys and values, for rows that decode and rows of prompts alike.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gpu/kernels/kv_pages.hpp"

namespace troupe::gpu {

// Positions of a tile (a lane each) and of a split. Both begin at absolute positions, so what a row
// adds up, and in which order, follows from its own position alone.
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

// A row attends to what it sees in the whole splits that this item covers. Either these are all,
// and the result is final; or it is one, and its state is stored as partial number `partial`, to be
// merged. Both ways give the same bits, so who is cut up is a matter of speed alone. An item of no
// splits, and a merge of no partials, only fill up a step.
struct AttentionItem {
    std::uint32_t row;
    RowPlace place;
    std::uint32_t split_begin, split_end;
    std::int32_t partial;  // -1: none
};

// The states of a row's splits, in order.
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
    const AttentionItem* items;    // [item_count]
    const AttentionMerge* merges;  // [merge_count]
    float* partials;               // [][heads][maximum, sum, head_length values]
    std::uint32_t item_count, merge_count, q_stride, out_stride, heads;
    std::uint32_t window, sinks;  // as for seen_positions()
    float scale;
};
void attention_truth(const Attention& p);  // by the items' rows, which are all rows
void attention(const Attention& p, cudaStream_t stream);

[[nodiscard]] constexpr std::size_t partial_floats(std::uint32_t heads, std::uint32_t head_length) {
    return std::size_t{heads} * (head_length + 2);
}

}  // namespace troupe::gpu
