// Bookkeeping on the device: each kernel is one line of plain code for each thread. Counts are
// integers, so the order of their atomic additions does not matter.
#include "gpu/device.cuh"
#include "gpu/kernels/step_tables.hpp"

namespace troupe::gpu {
namespace {

constexpr unsigned kThreads = 128;

dim3 blocks_for(std::uint32_t count) {
    return (count + kThreads - 1) / kThreads;
}
__device__ __forceinline__ std::uint32_t thread_number() {
    return blockIdx.x * kThreads + threadIdx.x;
}

__global__ void grant_kernel(const StepTables p) {
    const std::uint32_t i = thread_number();
    if (i >= p.grant_count) return;
    const TableEntry entry = p.grants[i];
    p.page_table[std::size_t{entry.slot} * p.page_table_width + entry.word] = entry.page;
}

__global__ void clear_counts_kernel(const StepTables p) {
    const std::uint32_t token = thread_number();
    if (token >= p.vocabulary) return;
    p.counts[std::size_t{p.cleared_counts[blockIdx.y]} * p.vocabulary + token] = 0;
}

__global__ void edit_counts_kernel(const StepTables p) {
    const std::uint32_t i = thread_number();
    if (i >= p.edit_count) return;
    const CountEdit edit = p.count_edits[i];
    std::uint32_t* const word = p.counts + std::size_t{edit.slot} * p.vocabulary + edit.token;
    if (edit.added == 0) {
        atomicOr(word, kInPrompt);
    } else {
        atomicAdd(word, static_cast<std::uint32_t>(edit.added));
    }
}

__global__ void resolve_tokens_kernel(const StepTables p) {
    const std::uint32_t row = thread_number();
    if (row >= p.rows) return;
    const std::uint32_t slot = p.places[row].slot;
    const std::int32_t token = p.given[row] < 0 ? p.drawn[slot] : p.given[row];
    p.tokens[row] = token;
    if (p.counts != nullptr && p.row_counts[row] != 0) {
        atomicAdd(p.counts + std::size_t{slot} * p.vocabulary + token, 1U);
    }
}

// A block a copy, and keys or values of a layer.
__global__ void copy_pages_kernel(const CopyPages p) {
    const CopiedPage copy = p.copies[blockIdx.x];
    std::byte* const pages = p.pool + blockIdx.y * p.layer_bytes;
    const auto* const from =
        reinterpret_cast<const uint4*>(pages + std::size_t{copy.from} * p.page_bytes);
    auto* const to = reinterpret_cast<uint4*>(pages + std::size_t{copy.to} * p.page_bytes);
    for (std::uint32_t i = threadIdx.x; i < p.page_bytes / sizeof(uint4); i += kThreads)
        to[i] = from[i];
}

}  // namespace

void apply_tables(const StepTables& p, cudaStream_t stream) {
    if (p.grant_count > 0) launch(grant_kernel, blocks_for(p.grant_count), kThreads, 0, stream, p);
    if (p.counts != nullptr && p.cleared_count > 0) {
        const dim3 grid{blocks_for(p.vocabulary).x, p.cleared_count};
        launch(clear_counts_kernel, grid, kThreads, 0, stream, p);
    }
    if (p.counts != nullptr && p.edit_count > 0) {
        launch(edit_counts_kernel, blocks_for(p.edit_count), kThreads, 0, stream, p);
    }
    if (p.rows > 0) launch(resolve_tokens_kernel, blocks_for(p.rows), kThreads, 0, stream, p);
}

void copy_pages(const CopyPages& p, cudaStream_t stream) {
    if (p.count == 0) return;
    launch(copy_pages_kernel, {p.count, 2 * p.layers}, kThreads, 0, stream, p);
}

}  // namespace troupe::gpu
