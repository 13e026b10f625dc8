// Kernels that are no product: embedding, norm, rotation with the store into pages, activation.
// Every launcher throws BackendError; `..._truth` is the same in plain code, for pointers into host
// memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gpu/kernels/weights.hpp"

namespace troupe::gpu {

inline constexpr std::uint32_t kPageTokens = 16;

struct Embed {
    WeightMatrix table;          // [vocabulary][width]
    const std::int32_t* tokens;  // [rows]
    float* out;                  // [rows][out_stride]
    std::uint32_t rows, width, out_stride;
};
void embed(const Embed& p, cudaStream_t stream);

// out[i] = (x * r) * weight, r = 1 / sqrt(sum of squares / width + epsilon), of x[row_ids[i]], or
// of x[i] where row_ids is null. Sum: thread t of 256 takes columns t, t + 256, ... by fma; lanes
// of a warp pairwise, warps in order.
struct RmsNorm {
    const float* x;                // [][x_stride]
    const float* weight;           // [width]
    const std::uint32_t* row_ids;  // [rows], or null
    float* out;                    // [rows][out_stride]
    std::uint32_t rows, width, x_stride, out_stride;
    float epsilon;
};
void rms_norm_truth(const RmsNorm& p);
void rms_norm(const RmsNorm& p, cudaStream_t stream);

// One layer's keys and values: element (page, kv head, token, d) of either is
// [((page * kv_heads + head) * 16 + token) * head_length + d], a half.
struct KvPages {
    std::uint16_t* keys;
    std::uint16_t* values;
    const std::uint32_t* page_table;  // [slots][pages_per_slot]: page of 16 positions
    std::uint32_t pages_per_slot;
    std::uint32_t kv_heads, head_length;
};

// Where a row stands.
struct RowPlace {
    std::uint32_t slot;
    std::uint32_t position;
};

// Rotates the first `rotated` elements of each query and key head, pair (2i, 2i + 1) by the i-th
// (cos, sin) of its position: a' = fma(a, cos, -(b * sin)), b' = fma(b, cos, a * sin). Queries
// stay, keys and values go to their page, rounded to halves.
struct RopeStore {
    float* qkv;              // [rows][stride]: queries, keys, values
    const float* angles;     // [positions][rotated / 2][cos, sin]
    const RowPlace* places;  // [rows]
    KvPages kv;
    std::uint32_t rows, stride, heads, rotated;
};
void rope_store_truth(const RopeStore& p);
void rope_store(const RopeStore& p, cudaStream_t stream);

// out = gate / (1 + exp(-gate)) * up, with model::math::exp.
struct SiluMul {
    const float* gate_up;  // [rows][in_stride]: gate, then up
    float* out;            // [rows][out_stride]
    std::uint32_t rows, width, in_stride, out_stride;
};
void silu_mul_truth(const SiluMul& p);
void silu_mul(const SiluMul& p, cudaStream_t stream);

}  // namespace troupe::gpu
