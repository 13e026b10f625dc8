// Activations as halves for tensor units: a block a row, once for its largest magnitude, once to
// write.
#include <algorithm>
#include <cmath>

#include "gpu/device.cuh"
#include "gpu/kernels/half_matmul.hpp"
#include "model/half.hpp"

namespace troupe::gpu {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarpLanes;
constexpr int kLargestExponent = 14;  // of a scaled row's largest magnitude
constexpr int kExponentMin = -112;    // below, a row is scaled as if it were there
constexpr std::uint32_t kExponentBias = 127;

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

}  // namespace

void to_halves_truth(const ToHalves& p) {
    for (std::uint32_t row = 0; row < p.rows; ++row) {
        const float* const x = p.x + std::size_t{row} * p.x_stride;
        float largest = 0;
        for (std::size_t c = 0; c < p.columns; ++c)
            largest = std::fmax(largest, std::fabs(x[c]));
        const int exponent = largest > 0 ? std::ilogb(largest) : kExponentMin;
        const int shift = kLargestExponent - std::max(exponent, kExponentMin);
        p.out.unscale[row] = static_cast<float>(std::ldexp(1.0, -shift));
        for (std::uint32_t c = 0; c < p.out.stride; ++c) {
            const double value = c < p.columns ? std::ldexp(double{x[c]}, shift) : 0.0;
            p.out.values[place_of(p.out, row, c)] = model::float_to_half(static_cast<float>(value));
        }
    }
}

namespace {

__global__ void to_halves_kernel(const ToHalves p) {
    float* const warp_largest = shared_memory<float>();  // [warps]
    const float* const x = p.x + std::size_t{blockIdx.x} * p.x_stride;
    float largest = 0;
    for (std::uint32_t c = threadIdx.x; c < p.columns; c += kThreads)
        largest = fmaxf(largest, fabsf(x[c]));
    largest = warp_max(largest);
    if (lane_index() == 0) warp_largest[warp_index()] = largest;
    __syncthreads();
    for (unsigned warp = 0; warp < kWarps; ++warp)
        largest = fmaxf(largest, warp_largest[warp]);
    const int shift = kLargestExponent - exponent_for(largest);
    const float scale = power_of_two(shift);
    if (threadIdx.x == 0) p.out.unscale[blockIdx.x] = power_of_two(-shift);
    for (std::uint32_t c = threadIdx.x; c < p.out.stride; c += kThreads) {
        const float value = c < p.columns ? x[c] * scale : 0.0F;
        p.out.values[place_of(p.out, blockIdx.x, c)] = __half_as_ushort(__float2half_rn(value));
    }
}

}  // namespace

void to_halves(const ToHalves& p, cudaStream_t stream) {
    launch(to_halves_kernel, p.rows, kThreads, kWarps * sizeof(float), stream, p);
}

}  // namespace troupe::gpu
