// Parts of sums and of rows from all ranks: a thread an element.
#include <algorithm>

#include "gpu/device.cuh"
#include "gpu/kernels/rank_parts.hpp"

namespace troupe::gpu {

void add_parts_truth(const AddParts& p) {
    for (std::size_t i = 0; i < p.count; ++i) {
        float sum = p.parts[i];
        for (std::uint32_t rank = 1; rank < p.ranks; ++rank)
            sum += p.parts[rank * p.count + i];
        p.x[i] += sum;
    }
}

void join_columns_truth(const JoinColumns& p) {
    for (std::size_t row = 0; row < p.rows; ++row) {
        for (std::size_t c = 0; c < p.width; ++c) {
            const std::size_t first = c - c % p.part_width;  // of the rank's columns
            const std::size_t columns = std::min<std::size_t>(p.part_width, p.width - first);
            p.out[row * p.width + c] = p.parts[first * p.rows + row * columns + c - first];
        }
    }
}

namespace {

constexpr unsigned kThreads = 256;

unsigned blocks_for(std::size_t count) {
    return static_cast<unsigned>((count + kThreads - 1) / kThreads);
}

__global__ void add_parts_kernel(const AddParts p) {
    const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
    if (i >= p.count) return;
    float sum = p.parts[i];
    for (std::uint32_t rank = 1; rank < p.ranks; ++rank)
        sum += p.parts[rank * p.count + i];
    p.x[i] += sum;
}

__global__ void join_columns_kernel(const JoinColumns p) {
    const std::uint32_t c = blockIdx.x * kThreads + threadIdx.x;
    if (c >= p.width) return;
    const std::uint32_t first = c - c % p.part_width;  // of the rank's columns
    const std::uint32_t columns = std::min(p.part_width, p.width - first);
    const std::size_t row = blockIdx.y;
    p.out[row * p.width + c] = p.parts[std::size_t{first} * p.rows + row * columns + c - first];
}

}  // namespace

void add_parts(const AddParts& p, cudaStream_t stream) {
    launch(add_parts_kernel, blocks_for(p.count), kThreads, 0, stream, p);
}

void join_columns(const JoinColumns& p, cudaStream_t stream) {
    launch(join_columns_kernel, {blocks_for(p.width), p.rows}, kThreads, 0, stream, p);
}

}  // namespace troupe::gpu
