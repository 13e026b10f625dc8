// Attention over paged keys and values, for rows that decode and rows of prompts alike.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gpu/kernels/elements.hpp"

namespace troupe::gpu {

// Positions of a tile (a lane each) and of a split. Both begin at absolute positions, so what a row
// adds up, and in which order, follows from its own position alone.
inline constexpr std::uint32_t kTileTokens = 32;
inline constexpr std::uint32_t kSplitTokens = 256;

inline constexpr std::uint32_t kHeadLengthMax = 256;
inline constexpr std::uint32_t kHeadsPerKvMax = 32;

// A row attends to positions 0 .. position, of which this item covers whole splits. Either all of
// them, and the result is final; or one, and its state is stored as partial number `partial`, to be
// merged. Both ways give the same bits, so who is cut up is a matter of speed alone.
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
    const float* q;  // [rows][q_stride]: [heads][head_length]
    float* out;      // [rows][out_stride]: likewise
    KvPages kv;
    const AttentionItem* items;    // [item_count]
    const AttentionMerge* merges;  // [merge_count]
    float* partials;               // [][heads][maximum, sum, head_length values]
    std::uint32_t item_count, merge_count, q_stride, out_stride, heads;
    float scale;
};
void attention_truth(const Attention& p);  // by the items' rows, which are all rows
void attention(const Attention& p, cudaStream_t stream);

[[nodiscard]] constexpr std::size_t partial_floats(std::uint32_t heads, std::uint32_t head_length) {
    return std::size_t{heads} * (head_length + 2);
}

}  // namespace troupe::gpu
