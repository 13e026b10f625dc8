// Biases and norms of queries and keys, rotary positions (Su et al., 2021), and the store of keys
// and values into their pages: a block a row, a warp a head, a lane an adjacent pair.
#include <algorithm>
#include <cmath>

#include "gpu/device.cuh"
#include "gpu/kernels/elements.hpp"
#include "gpu/kernels/kv_forms.cuh"
#include "model/half.hpp"

namespace troupe::gpu {
namespace {

void rotate_truth(const float* angles, std::size_t rotated, const float* from, float* to) {
    for (std::size_t d = 0; d < rotated; d += 2) {
        const double a = from[d], b = from[d + 1];
        to[d] = static_cast<float>(a * angles[d] - b * angles[d + 1]);
        to[d + 1] = static_cast<float>(b * angles[d] + a * angles[d + 1]);
    }
}

void prepare_truth(const RopeStore& p, std::size_t head, float* x) {
    const std::size_t length = p.kv.head_length;
    for (std::size_t d = 0; d < length && p.inputs.bias != nullptr; ++d)
        x[d] += p.inputs.bias[head * length + d];
    const float* const weight = head < p.heads                   ? p.inputs.q_norm
                                : head < p.heads + p.kv.kv_heads ? p.inputs.k_norm
                                                                 : nullptr;
    if (weight == nullptr) return;
    double sum = 0;
    for (std::size_t d = 0; d < length; ++d)
        sum += double{x[d]} * x[d];
    const double r = 1 / std::sqrt(sum / static_cast<double>(length) + p.inputs.epsilon);
    for (std::size_t d = 0; d < length; ++d)
        x[d] = static_cast<float>(x[d] * r * weight[d]);
}

bool fits_truth(const KvPages& kv, const float* x) {
    if (kv.form != KvForm::f16) return true;
    const auto is_finite = [](float y) {
        return std::isfinite(model::half_to_float(model::float_to_half(y)));
    };
    return std::all_of(x, x + kv.head_length, is_finite);
}

void store_truth(const KvPages& kv, std::byte* block, std::uint32_t token, const float* x) {
    const std::size_t length = kv.head_length;
    if (kv.form == KvForm::f16) {
        for (std::size_t d = 0; d < length; ++d)
            reinterpret_cast<std::uint16_t*>(block)[token * length + d] =
                model::float_to_half(x[d]);
        return;
    }
    float largest = 0;
    for (std::size_t d = 0; d < length; ++d)
        largest = std::isnan(x[d]) ? INFINITY : std::fmax(largest, std::fabs(x[d]));
    reinterpret_cast<float*>(block)[token] = std::isinf(largest)   ? NAN
                                             : largest < 0x1p-100F ? 0
                                                                   : largest / 127;
    auto* const numbers = reinterpret_cast<std::int8_t*>(block) + kPageTokens * sizeof(float);
    for (std::size_t d = 0; d < length; ++d) {
        const bool some = std::isfinite(largest) && largest >= 0x1p-100F;
        numbers[token * length + d] =
            some ? static_cast<std::int8_t>(std::nearbyint(x[d] * (127 / largest))) : 0;
    }
}

}  // namespace

void rope_store_truth(const RopeStore& p) {
    const std::size_t length = p.kv.head_length;
    for (std::size_t row = 0; row < p.rows; ++row) {
        const RowPlace place = p.places[row];
        float* const heads = p.qkv + row * p.stride;
        for (std::size_t head = 0; head < p.heads + 2 * p.kv.kv_heads; ++head)
            prepare_truth(p, head, heads + head * length);
        for (std::size_t head = 0; head < p.heads && p.sinks_q != nullptr; ++head) {
            float* const to = p.sinks_q + (row * p.heads + head) * length;
            std::copy_n(heads + head * length, length, to);
            rotate_truth(p.angles.row(p.angle_rows[row].sinks), p.angles.rotated, to, to);
        }
        for (std::size_t head = 0; head < p.heads + p.kv.kv_heads; ++head) {
            float* const x = heads + head * length;
            rotate_truth(p.angles.row(p.angle_rows[row].own), p.angles.rotated, x, x);
        }
        for (std::uint32_t head = 0; head < p.kv.kv_heads; ++head) {
            const std::size_t at = p.kv.block_offset(place.slot, place.position, head);
            float* const key = heads + (p.heads + head) * length;
            float* const value = key + p.kv.kv_heads * length;
            if (!fits_truth(p.kv, key) || !fits_truth(p.kv, value)) {
                std::fill_n(key, length, NAN);
                std::fill_n(value, length, 0.0F);
            }
            const std::uint32_t token = place.position % kPageTokens;
            store_truth(p.kv, p.kv.keys + at, token, key);
            store_truth(p.kv, p.kv.values + at, token, value);
        }
    }
}

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarpLanes;

// This lane's pairs of head `i` of queries, keys and values, as the next function's.
__device__ __forceinline__ void prepare(const RopeStore& p, std::uint32_t i, float* x) {
    const std::uint32_t length = p.kv.head_length;
    if (p.inputs.bias != nullptr) {
        const float* const bias = p.inputs.bias + i * length;
        for (std::uint32_t d = 2 * lane_index(); d < length; d += 2 * kWarpLanes) {
            x[d] += bias[d];
            x[d + 1] += bias[d + 1];
        }
    }
    const float* const weight = i < p.heads                   ? p.inputs.q_norm
                                : i < p.heads + p.kv.kv_heads ? p.inputs.k_norm
                                                              : nullptr;
    if (weight == nullptr) return;
    float sum = 0;
    for (std::uint32_t d = 2 * lane_index(); d < length; d += 2 * kWarpLanes)
        sum = fmaf(x[d + 1], x[d + 1], fmaf(x[d], x[d], sum));
    sum = warp_sum(sum);
    const float r = 1.0F / sqrtf(sum / static_cast<float>(length) + p.inputs.epsilon);
    for (std::uint32_t d = 2 * lane_index(); d < length; d += 2 * kWarpLanes) {
        x[d] = (x[d] * r) * weight[d];
        x[d + 1] = (x[d + 1] * r) * weight[d + 1];
    }
}

__device__ __forceinline__ void rotate(const RopeAngles& angles, std::uint32_t angle_row,
                                       std::uint32_t length, const float* from, float* to) {
    const float* const angle = angles.row(angle_row);
    for (std::uint32_t d = 2 * lane_index(); d < length; d += 2 * kWarpLanes) {
        const float a = from[d];
        const float b = from[d + 1];
        const bool turns = d < angles.rotated;
        to[d] = turns ? fmaf(a, angle[d], -(b * angle[d + 1])) : a;
        to[d + 1] = turns ? fmaf(b, angle[d], a * angle[d + 1]) : b;
    }
}

template <KvForm kForm>
__device__ __forceinline__ void store(const KvPages& kv, RowPlace place, std::uint32_t head,
                                      float* key, float* value) {
    using Numbers = KvNumbers<kForm>;
    const std::uint32_t length = kv.head_length;
    const bool fits = Numbers::fits(length, key) && Numbers::fits(length, value);
    for (std::uint32_t d = 2 * lane_index(); !fits && d < length; d += 2 * kWarpLanes) {
        key[d] = key[d + 1] = NAN;
        value[d] = value[d + 1] = 0;
    }
    const std::size_t at = kv.block_offset(place.slot, place.position, head);
    Numbers::store(kv.keys + at, place.position % kPageTokens, length, key);
    Numbers::store(kv.values + at, place.position % kPageTokens, length, value);
}

template <KvForm kForm>
__global__ void rope_store_kernel(const RopeStore p) {
    const std::uint32_t length = p.kv.head_length;
    const std::uint32_t kv_heads = p.kv.kv_heads;
    const RowPlace place = p.places[blockIdx.x];
    if (place.slot == kNoSlot) return;
    const AngleRows angle_rows = p.angle_rows[blockIdx.x];
    float* const heads = p.qkv + std::size_t{blockIdx.x} * p.stride;
    for (std::uint32_t i = warp_index(); i < p.heads + kv_heads; i += kWarps) {
        float* const x = heads + i * length;
        prepare(p, i, x);
        if (i < p.heads && p.sinks_q != nullptr) {
            rotate(p.angles, angle_rows.sinks, length, x,
                   p.sinks_q + (std::size_t{blockIdx.x} * p.heads + i) * length);
        }
        rotate(p.angles, angle_rows.own, length, x, x);
        if (i < p.heads) continue;
        float* const value = x + kv_heads * length;
        prepare(p, i + kv_heads, value);
        store<kForm>(p.kv, place, i - p.heads, x, value);
    }
}

}  // namespace

void rope_store(const RopeStore& p, cudaStream_t stream) {
    for_kv_form(p.kv.form, [&]<KvForm kForm>() {
        launch(rope_store_kernel<kForm>, p.rows, kThreads, 0, stream, p);
    });
}

}  // namespace troupe::gpu
