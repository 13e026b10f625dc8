// What products on tensor units have in common, whichever instruction makes them: a warp has 16
// weight rows, lane 4 g + t of it the columns 32 t .. 32 t + 31 of a chunk of the rows g and g + 8.
#pragma once

#include "gpu/kernels/half_matmul.hpp"
#include "gpu/kernels/half_weights.cuh"

namespace troupe::gpu {

inline constexpr unsigned kRowsOfWarp = 16;
inline constexpr unsigned kTileRows = 8;    // of activations, the columns of a product
inline constexpr unsigned kSumsOfTile = 4;  // in a lane

__device__ __forceinline__ std::uint32_t chunks_of(const HalfMatmul& p) {
    return p.x.stride / kChunkColumns;
}
// Chunks [part_begin(part), part_begin(part + 1)) are a part's.
__device__ __forceinline__ std::uint32_t part_begin(std::uint32_t chunks, std::uint32_t part) {
    return chunks * part / kColumnParts;
}

// What a lane needs of 16 weight rows and a chunk.
template <WeightType kType>
struct ChunkWeights {
    RawWeights<HalfWeights<kType>::kWords> lower, upper;  // rows g and g + 8

    // Rows past the end repeat the last one; nobody looks at what becomes of them.
    __device__ __forceinline__ void load(const WeightMatrix& w, std::uint32_t first_row,
                                         std::uint32_t chunk) {
        const std::uint32_t row = first_row + lane_index() / 4;
        const std::uint32_t last = w.rows - 1;
        const std::uint32_t column = chunk * kChunkColumns + lane_index() % 4 * kGroupColumns;
        lower = load_raw<kType>(w, row < last ? row : last, column);
        upper = load_raw<kType>(w, row + 8 < last ? row + 8 : last, column);
    }
};

__device__ __forceinline__ void write_sum(const HalfMatmul& p, std::uint32_t row,
                                          std::uint32_t output, float sum) {
    if (row >= p.rows || output >= p.w.rows) return;
    float& out = p.out[std::size_t{row} * p.out_stride + output];
    const float product = sum * p.x.unscale[row];
    out = p.add ? out + product : product;
}

// Which weight row and row of activations, from the first of each on, sum `i` of a tile is in a
// lane.
__device__ __forceinline__ std::uint32_t output_of(unsigned lane, unsigned i) {
    return lane / 4 + i / 2 * 8;
}
__device__ __forceinline__ std::uint32_t row_of(unsigned lane, unsigned i) {
    return lane % 4 * 2 + i % 2;
}

}  // namespace troupe::gpu
