// Activations as tensor units want them. Kernels whose results are multiplied next write them so
// themselves; of attention's a kernel of its own makes them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace troupe::gpu {

// Columns that a warp takes at once; rows of halves are padded to whole chunks.
inline constexpr std::uint32_t kChunkColumns = 128;
[[nodiscard]] constexpr std::uint32_t padded_to_chunks(std::uint32_t columns) {
    return (columns + kChunkColumns - 1) / kChunkColumns * kChunkColumns;
}

// Where the values of rows lie.
//   rows   [rows][stride]; of eight consecutive columns in the order 0 4 1 5 2 6 3 7
//   tiles  [rows / 128][stride / 8][128][8]: eight columns of 128 rows that are next to each other
//          in a product, as warpgroups want them in shared memory. Group 4 e + q of a chunk has of
//          each of its four times 32 columns those at 8 e + q and 8 e + q + 4. So all the
//          operations of a sum are those of `rows`, in the same places.
enum class HalfOrder : std::uint32_t { rows, tiles };
inline constexpr std::uint32_t kHalfTileRows = 128;

// Rows of activations as halves. A row is scaled by a power of two that brings its largest
// magnitude to [2^14, 2^15), so that no number is too large and none that matters too small;
// `unscale` undoes it.
struct HalfRows {
    std::uint16_t* values;  // padded_half_rows() of them, in `order`; zeros from `columns` on
    float* unscale;         // [rows]
    std::uint32_t stride;   // a multiple of kChunkColumns
    HalfOrder order = HalfOrder::rows;
};

// Rows that there must be room for: tiles are whole, what is in the rest of the last is never seen.
[[nodiscard]] constexpr std::uint32_t padded_half_rows(HalfOrder order, std::uint32_t rows) {
    return order == HalfOrder::rows ? rows
                                    : (rows + kHalfTileRows - 1) / kHalfTileRows * kHalfTileRows;
}

struct ToHalves {
    const float* x;  // [rows][x_stride]
    HalfRows out;
    std::uint32_t rows, columns, x_stride;
};
void to_halves_truth(const ToHalves& p);
void to_halves(const ToHalves& p, cudaStream_t stream);

}  // namespace troupe::gpu
