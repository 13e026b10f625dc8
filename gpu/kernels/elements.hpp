// Kernels that are no product: embedding, norm, rotation with the store into pages, activation.
// Every launcher throws BackendError; `..._truth` is the same in plain code, for pointers into host
// memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "gpu/kernels/half_rows.hpp"
#include "gpu/kernels/kv_pages.hpp"
#include "gpu/kernels/weights.hpp"

namespace troupe::gpu {

struct Embed {
    WeightMatrix table;          // [vocabulary][width]
    const std::int32_t* tokens;  // [rows]
    float* out;                  // [rows][out_stride]
    std::uint32_t rows, width, out_stride;
};
void embed(const Embed& p, cudaStream_t stream);

// out[i] = (x * r) * weight, r = 1 / sqrt(sum of squares / width + epsilon), of x[row_ids[i]], or
// of x[i] where row_ids is null. Sum: thread t of 256 takes columns t, t + 256, ... by fma; lanes
// of a warp pairwise, warps in order. As floats, or where `halves` has values as the halves that
// to_halves() would make of them.
struct RmsNorm {
    const float* x;                // [][x_stride]
    const float* weight;           // [width]
    const std::uint32_t* row_ids;  // [rows], or null
    float* out;                    // [rows][out_stride]
    std::uint32_t rows, width, x_stride, out_stride;
    float epsilon;
    HalfRows halves = {};
};
void rms_norm_truth(const RmsNorm& p);
void rms_norm(const RmsNorm& p, cudaStream_t stream);

// Angles of a position: rows of a table that has those that the model was trained for, or, from
// its end on, of those that come with the step.
struct RopeAngles {
    const float* table;  // [table_rows][rotated / 2][cos, sin]
    const float* far;    // likewise
    std::uint32_t table_rows, rotated;

    [[nodiscard]] constexpr const float* row(std::uint32_t index) const {
        return index < table_rows ? table + std::size_t{index} * rotated
                                  : far + std::size_t{index - table_rows} * rotated;
    }
};

// A row's: of its position, and of where its query is rotated to look at sinks.
struct AngleRows {
    std::uint32_t own, sinks;
};

// What some architectures do to queries and keys before they are rotated: null where they do not.
struct HeadInputs {
    const float* bias;    // [stride of queries, keys, values], added to them
    const float* q_norm;  // [head_length], weights of an RmsNorm of each query head
    const float* k_norm;  // likewise of each key head; lane l of a warp sums elements 2 l, 2 l + 1,
    float epsilon;        // and those 64 further on, by fma, then lanes pairwise
};

// Rotates the first `rotated` elements of each query and key head, pair (2i, 2i + 1) by the i-th
// (cos, sin) of its position: a' = fma(a, cos, -(b * sin)), b' = fma(b, cos, a * sin). Queries
// stay, keys and values go to their page, in the form of the cache.
struct RopeStore {
    // [rows][stride]: queries, keys, values. Keys are rotated there, too, and what the form of the
    // cache cannot hold is replaced.
    float* qkv;
    float* sinks_q;  // [rows][heads][head_length], queries that look at sinks; null: no sinks
    HeadInputs inputs;
    RopeAngles angles;
    const RowPlace* places;       // [rows]; those of kNoSlot are left out
    const AngleRows* angle_rows;  // [rows]
    KvPages kv;
    std::uint32_t rows, stride, heads;
};
void rope_store_truth(const RopeStore& p);
void rope_store(const RopeStore& p, cudaStream_t stream);

// out = gate / (1 + exp(-gate)) * up, with model::math::exp; as halves likewise.
struct SiluMul {
    const float* gate_up;  // [rows][in_stride]: gate, then up
    float* out;            // [rows][out_stride]
    std::uint32_t rows, width, in_stride, out_stride;
    HalfRows halves = {};
};
void silu_mul_truth(const SiluMul& p);
void silu_mul(const SiluMul& p, cudaStream_t stream);

}  // namespace troupe::gpu
