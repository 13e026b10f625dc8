// Activations as halves for tensor units: a block a row.
#include <algorithm>
#include <cmath>

#include "gpu/device.cuh"
#include "gpu/kernels/half_rows.cuh"
#include "model/half.hpp"

namespace troupe::gpu {

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
    const float* const x = p.x + std::size_t{blockIdx.x} * p.x_stride;
    write_half_row(p.out, blockIdx.x, p.columns, shared_memory<float>(),
                   [x](std::uint32_t c) { return x[c]; });
}

}  // namespace

void to_halves(const ToHalves& p, cudaStream_t stream) {
    launch(to_halves_kernel, p.rows, kHalfRowThreads, kHalfRowWarps * sizeof(float), stream, p);
}

}  // namespace troupe::gpu
