// Rotary positions (Su et al., 2021) and the store of keys and values into their pages: a block a
// row, a thread an adjacent pair.
#include "gpu/device.cuh"
#include "gpu/kernels/elements.hpp"
#include "model/half.hpp"

namespace troupe::gpu {
namespace {

// Of position `position` of a slot, head `head`, its first element.
__host__ __device__ __forceinline__ std::size_t kv_offset(const KvPages& kv, RowPlace place,
                                                          std::uint32_t head) {
    const std::size_t page =
        kv.page_table[std::size_t{place.slot} * kv.pages_per_slot + place.position / kPageTokens];
    return ((page * kv.kv_heads + head) * kPageTokens + place.position % kPageTokens) *
           kv.head_length;
}

}  // namespace

void rope_store_truth(const RopeStore& p) {
    const std::size_t length = p.kv.head_length;
    for (std::size_t row = 0; row < p.rows; ++row) {
        const RowPlace place = p.places[row];
        float* const heads = p.qkv + row * p.stride;
        for (std::size_t head = 0; head < p.heads + p.kv.kv_heads; ++head) {
            for (std::size_t d = 0; d < p.rotated; d += 2) {
                const float* const angle = p.angles + std::size_t{place.position} * p.rotated + d;
                float& a = heads[head * length + d];
                float& b = heads[head * length + d + 1];
                const double x = double{a} * angle[0] - double{b} * angle[1];
                b = static_cast<float>(double{b} * angle[0] + double{a} * angle[1]);
                a = static_cast<float>(x);
            }
        }
        for (std::uint32_t head = 0; head < p.kv.kv_heads; ++head) {
            const std::size_t at = kv_offset(p.kv, place, head);
            const float* const key = heads + (p.heads + head) * length;
            const float* const value = key + p.kv.kv_heads * length;
            for (std::size_t d = 0; d < length; ++d) {
                p.kv.keys[at + d] = model::float_to_half(key[d]);
                p.kv.values[at + d] = model::float_to_half(value[d]);
            }
        }
    }
}

namespace {

constexpr unsigned kThreads = 256;

__device__ __forceinline__ void rotate(const RopeStore& p, std::uint32_t position, std::uint32_t d,
                                       float& a, float& b) {
    if (d >= p.rotated) return;
    const float* const angle = p.angles + std::size_t{position} * p.rotated + d;
    const float rotated = fmaf(a, angle[0], -(b * angle[1]));
    b = fmaf(b, angle[0], a * angle[1]);
    a = rotated;
}

__device__ __forceinline__ void store_pair(std::uint16_t* at, float a, float b) {
    at[0] = __half_as_ushort(__float2half_rn(a));
    at[1] = __half_as_ushort(__float2half_rn(b));
}

__global__ void rope_store_kernel(const RopeStore p) {
    const std::uint32_t length = p.kv.head_length;
    const RowPlace place = p.places[blockIdx.x];
    float* const heads = p.qkv + std::size_t{blockIdx.x} * p.stride;
    const std::uint32_t query_pairs = p.heads * length / 2;
    const std::uint32_t key_pairs = p.kv.kv_heads * length / 2;
    for (std::uint32_t i = threadIdx.x; i < query_pairs + 2 * key_pairs; i += kThreads) {
        const std::uint32_t d = 2 * i % length;
        float a = heads[2 * i];
        float b = heads[2 * i + 1];
        if (i < query_pairs) {
            rotate(p, place.position, d, a, b);
            heads[2 * i] = a;
            heads[2 * i + 1] = b;
            continue;
        }
        const bool is_key = i < query_pairs + key_pairs;
        const std::uint32_t head = 2 * (i - query_pairs) / length % p.kv.kv_heads;
        if (is_key) rotate(p, place.position, d, a, b);
        store_pair((is_key ? p.kv.keys : p.kv.values) + kv_offset(p.kv, place, head) + d, a, b);
    }
}

}  // namespace

void rope_store(const RopeStore& p, cudaStream_t stream) {
    launch(rope_store_kernel, p.rows, kThreads, 0, stream, p);
}

}  // namespace troupe::gpu
