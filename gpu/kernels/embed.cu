// Embedding: the tokens' rows of the table, expanded. Its truth is model::dequantise.
#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/weights.cuh"

namespace troupe::gpu {
namespace {

constexpr unsigned kThreads = 128;

template <WeightType kType>
__global__ void embed_kernel(const Embed p) {
    const std::uint32_t row = blockIdx.x;
    const auto token = static_cast<std::uint32_t>(p.tokens[row]);
    for (std::uint32_t c = threadIdx.x * kLoadColumns; c < p.width; c += kThreads * kLoadColumns) {
        float values[kLoadColumns];
        WeightLoader<kType>::load(p.table, token, c, values);
        for (std::uint32_t i = 0; i < kLoadColumns; ++i) {
            if (c + i < p.width) p.out[std::size_t{row} * p.out_stride + c + i] = values[i];
        }
    }
}

}  // namespace

void embed(const Embed& p, cudaStream_t stream) {
    for_weight_type(p.table.type, [&]<WeightType kType>() {
        launch(embed_kernel<kType>, p.rows, kThreads, 0, stream, p);
    });
}

}  // namespace troupe::gpu
