// RMSNorm (Zhang and Sennrich, 2019): a block a row.
#include <cmath>

#include "gpu/device.cuh"
#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/half_rows.cuh"

namespace troupe::gpu {

void rms_norm_truth(const RmsNorm& p) {
    for (std::size_t row = 0; row < p.rows; ++row) {
        const float* const x = p.x + (p.row_ids != nullptr ? p.row_ids[row] : row) * p.x_stride;
        double sum = 0;
        for (std::size_t c = 0; c < p.width; ++c)
            sum += double{x[c]} * x[c];
        const double r = 1 / std::sqrt(sum / p.width + p.epsilon);
        for (std::size_t c = 0; c < p.width; ++c)
            p.out[row * p.out_stride + c] = static_cast<float>(x[c] * r * p.weight[c]);
    }
}

namespace {

constexpr unsigned kThreads = kHalfRowThreads;
constexpr unsigned kWarps = kHalfRowWarps;

__global__ void rms_norm_kernel(const RmsNorm p) {
    float* const warp_sums = shared_memory<float>();  // [warps]
    const std::size_t row = blockIdx.x;
    const float* const x =
        p.x + (p.row_ids != nullptr ? std::size_t{p.row_ids[row]} : row) * p.x_stride;
    float sum = 0;
    for (std::uint32_t c = threadIdx.x; c < p.width; c += kThreads)
        sum = fmaf(x[c], x[c], sum);
    sum = warp_sum(sum);
    if (lane_index() == 0) warp_sums[warp_index()] = sum;
    __syncthreads();
    float total = 0;
    for (unsigned warp = 0; warp < kWarps; ++warp)
        total += warp_sums[warp];
    const float r = 1.0F / sqrtf(total / static_cast<float>(p.width) + p.epsilon);
    const auto normed = [&](std::uint32_t c) { return (x[c] * r) * p.weight[c]; };
    if (p.halves.values != nullptr)
        return write_half_row(p.halves, blockIdx.x, p.width, warp_sums + kWarps, normed);
    for (std::uint32_t c = threadIdx.x; c < p.width; c += kThreads)
        p.out[row * p.out_stride + c] = normed(c);
}

}  // namespace

void rms_norm(const RmsNorm& p, cudaStream_t stream) {
    launch(rms_norm_kernel, p.rows, kThreads, 2 * kWarps * sizeof(float), stream, p);
}

}  // namespace troupe::gpu
