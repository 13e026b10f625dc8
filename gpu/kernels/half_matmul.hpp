// Products on tensor units: weights and activations as halves, sums in float32.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/kernels/half_rows.hpp"
#include "gpu/kernels/weights.hpp"

namespace troupe::gpu {

// A sum over columns is cut into so many parts of consecutive chunks.
inline constexpr std::uint32_t kColumnParts = 8;
// More rows than these are multiplied by kernels of their own.
inline constexpr std::uint32_t kNarrowRowsMax = 64;

// out[t][r] = sum over c of half(w[r][c]) * x[t][c], or that added to out[t][r] by one addition.
// The sum is the same operations for every number of rows: in each of the eight parts, chunk by
// chunk, the eight products of tensor units that cover it are added to the part's sum; then the
// parts are added in order. Weights of any type but f32.
struct HalfMatmul {
    WeightMatrix w;
    HalfRows x;
    float* out;  // [rows][out_stride]
    std::uint32_t rows, out_stride;
    bool add;
};
void half_matmul(const HalfMatmul& p, cudaStream_t stream);
// The same for activations in tiles, on cards of compute capability 9.0 alone: warpgroup_matmul.cu.
void warpgroup_matmul(const HalfMatmul& p, cudaStream_t stream);

}  // namespace troupe::gpu
