// Products in float32 throughout, for weights that are; those of other types are half_matmul.hpp's.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/kernels/weights.hpp"

namespace troupe::gpu {

// out[t][r] = sum over c of w[r][c] * x[t][c], or that added to out[t][r] by one addition. The sum
// is the same operations for every number of rows: lane l of a warp takes columns 8 l .. 8 l + 7,
// then those 256 further on, by fma from 0 in ascending order; lanes are added pairwise: 16 apart,
// then 8, 4, 2, 1.
struct Matmul {
    WeightMatrix w;  // f32
    const float* x;  // [rows][x_stride], of which the first `columns` are read
    float* out;      // [rows][out_stride]
    std::uint32_t rows, columns, x_stride, out_stride;
    bool add;
};
void matmul(const Matmul& p, cudaStream_t stream);

}  // namespace troupe::gpu
