// How a block writes a row of halves: once over the row for its largest magnitude, once to write.
#pragma once

#include "gpu/device.cuh"
#include "gpu/kernels/half_rows.hpp"

namespace troupe::gpu {

inline constexpr unsigned kHalfRowThreads = 256;
inline constexpr unsigned kHalfRowWarps = kHalfRowThreads / kWarpLanes;
inline constexpr int kLargestExponent = 14;  // of a scaled row's largest magnitude
inline constexpr int kExponentMin = -112;    // below, a row is scaled as if it were there

inline constexpr std::uint32_t kExponentBias = 127;

__host__ __device__ __forceinline__ float power_of_two(int exponent) {
    const std::uint32_t bits = (kExponentBias + static_cast<std::uint32_t>(exponent)) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

__host__ __device__ __forceinline__ int exponent_for(float largest) {
    std::uint32_t bits;
    memcpy(&bits, &largest, sizeof bits);
    const int exponent = static_cast<int>(bits >> 23 & 255U) - static_cast<int>(kExponentBias);
    return exponent > kExponentMin ? exponent : kExponentMin;
}

// Where column `c` of a row lies: see HalfOrder.
__host__ __device__ __forceinline__ std::size_t place_of(const HalfRows& rows, std::uint32_t row,
                                                         std::uint32_t c) {
    const std::uint32_t of_eight = c % 8;
    if (rows.order == HalfOrder::rows) {
        return std::size_t{row} * rows.stride + c - of_eight + of_eight % 4 * 2 + of_eight / 4;
    }
    const std::uint32_t of_chunk = c % kChunkColumns;
    const std::uint32_t group = (c - of_chunk) / 8 + of_chunk % 32 / 8 * 4 + of_eight % 4;
    const std::size_t tile = row / kHalfTileRows * std::size_t{rows.stride / 8};
    return ((tile + group) * kHalfTileRows + row % kHalfTileRows) * 8 + of_chunk / 32 * 2 +
           of_eight / 4;
}

// By all threads of the block, from value_of(column), which must be the same twice. `scratch`:
// [kHalfRowWarps], which nobody else uses meanwhile.
template <class ValueOf>
__device__ __forceinline__ void write_half_row(const HalfRows& out, std::uint32_t row,
                                               std::uint32_t columns, float* scratch,
                                               const ValueOf& value_of) {
    float largest = 0;
    for (std::uint32_t c = threadIdx.x; c < columns; c += kHalfRowThreads)
        largest = fmaxf(largest, fabsf(value_of(c)));
    largest = warp_max(largest);
    if (lane_index() == 0) scratch[warp_index()] = largest;
    __syncthreads();
    for (unsigned warp = 0; warp < kHalfRowWarps; ++warp)
        largest = fmaxf(largest, scratch[warp]);
    const int shift = kLargestExponent - exponent_for(largest);
    const float scale = power_of_two(shift);
    if (threadIdx.x == 0) out.unscale[row] = power_of_two(-shift);
    for (std::uint32_t c = threadIdx.x; c < out.stride; c += kHalfRowThreads) {
        const float value = c < columns ? value_of(c) * scale : 0.0F;
        out.values[place_of(out, row, c)] = __half_as_ushort(__float2half_rn(value));
    }
}

}  // namespace troupe::gpu
