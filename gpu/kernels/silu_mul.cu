// The activation of SwiGLU (Shazeer, 2020): a thread an element, or as halves a block a row.
#include <cmath>

#include "gpu/device.cuh"
#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/half_rows.cuh"
#include "model/math.hpp"

namespace troupe::gpu {

void silu_mul_truth(const SiluMul& p) {
    for (std::size_t row = 0; row < p.rows; ++row) {
        for (std::size_t c = 0; c < p.width; ++c) {
            const double gate = p.gate_up[row * p.in_stride + c];
            const double up = p.gate_up[row * p.in_stride + p.width + c];
            p.out[row * p.out_stride + c] = static_cast<float>(gate / (1 + std::exp(-gate)) * up);
        }
    }
}

namespace {

constexpr unsigned kThreads = 256;

__device__ __forceinline__ float activated(const SiluMul& p, std::uint32_t row, std::uint32_t c) {
    const float* const gates = p.gate_up + std::size_t{row} * p.in_stride;
    const float gate = gates[c];
    return gate / (1.0F + model::math::exp(-gate)) * gates[p.width + c];
}

__global__ void silu_mul_kernel(const SiluMul p) {
    const std::uint32_t c = blockIdx.x * kThreads + threadIdx.x;
    if (c >= p.width) return;
    p.out[std::size_t{blockIdx.y} * p.out_stride + c] = activated(p, blockIdx.y, c);
}

__global__ void silu_mul_halves_kernel(const SiluMul p) {
    write_half_row(p.halves, blockIdx.x, p.width, shared_memory<float>(),
                   [&p](std::uint32_t c) { return activated(p, blockIdx.x, c); });
}

}  // namespace

void silu_mul(const SiluMul& p, cudaStream_t stream) {
    if (p.halves.values != nullptr) {
        return launch(silu_mul_halves_kernel, p.rows, kHalfRowThreads,
                      kHalfRowWarps * sizeof(float), stream, p);
    }
    launch(silu_mul_kernel, {(p.width + kThreads - 1) / kThreads, p.rows}, kThreads, 0, stream, p);
}

}  // namespace troupe::gpu
