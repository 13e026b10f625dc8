// The activation of SwiGLU (Shazeer, 2020): a thread an element.
#include <cmath>

#include "gpu/device.cuh"
#include "gpu/kernels/elements.hpp"
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

__global__ void silu_mul_kernel(const SiluMul p) {
    const std::uint32_t c = blockIdx.x * kThreads + threadIdx.x;
    if (c >= p.width) return;
    const float* const row = p.gate_up + std::size_t{blockIdx.y} * p.in_stride;
    const float gate = row[c];
    p.out[std::size_t{blockIdx.y} * p.out_stride + c] =
        gate / (1.0F + model::math::exp(-gate)) * row[p.width + c];
}

}  // namespace

void silu_mul(const SiluMul& p, cudaStream_t stream) {
    launch(silu_mul_kernel, {(p.width + kThreads - 1) / kThreads, p.rows}, kThreads, 0, stream, p);
}

}  // namespace troupe::gpu
