// Expands eight consecutive weights to float32, a loader a type. The loads of a warp's lanes, eight
// columns apart, are consecutive in memory.
#pragma once

#include <cstring>

#include "gpu/device.cuh"
#include "gpu/kernels/k_weights.cuh"
#include "gpu/kernels/weights.hpp"

namespace troupe::gpu {

__device__ __forceinline__ float half_bits_to_float(std::uint32_t bits) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

__device__ __forceinline__ float float_of_bits(std::uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// Element `column` of row `row`, both counted in loads of type T.
template <class T>
__device__ __forceinline__ T weight_load(const WeightMatrix& w, std::uint32_t row,
                                         std::uint32_t column) {
    return static_cast<const T*>(w.data)[(std::size_t{row} * w.columns + column) / kLoadColumns];
}
__device__ __forceinline__ std::size_t weight_group(const WeightMatrix& w, std::uint32_t row,
                                                    std::uint32_t column) {
    return (std::size_t{row} * w.columns + column) / kGroupColumns;
}

// The K types; the others have their own.
template <WeightType kType>
struct WeightLoader {
    static_assert(is_k_type(kType));
    __device__ static void load(const WeightMatrix& w, std::uint32_t row, std::uint32_t column,
                                float (&out)[kLoadColumns]) {
        const auto word = weight_load<std::uint32_t>(w, row, column);
        const std::size_t group = weight_group(w, row, column);
        const unsigned eighth = column % kGroupColumns / kLoadColumns;
        const KStep step = k_step<kType>(load_k_group(w, group), eighth);
        const std::uint32_t high = load_k_high<kType>(w, group, eighth);
        for (unsigned i = 0; i < kLoadColumns; ++i)
            out[i] = k_value<kType>(word, high, i, step);
    }
};

template <>
struct WeightLoader<WeightType::f32> {
    struct alignas(16) Load {
        float4 low, high;
    };
    __device__ static void load(const WeightMatrix& w, std::uint32_t row, std::uint32_t column,
                                float (&out)[kLoadColumns]) {
        const Load l = weight_load<Load>(w, row, column);
        out[0] = l.low.x, out[1] = l.low.y, out[2] = l.low.z, out[3] = l.low.w;
        out[4] = l.high.x, out[5] = l.high.y, out[6] = l.high.z, out[7] = l.high.w;
    }
};

template <>
struct WeightLoader<WeightType::f16> {
    __device__ static void load(const WeightMatrix& w, std::uint32_t row, std::uint32_t column,
                                float (&out)[kLoadColumns]) {
        const uint4 words = weight_load<uint4>(w, row, column);
        const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
        for (int i = 0; i < 4; ++i) {
            out[2 * i] = half_bits_to_float(pairs[i] & 0xFFFFU);
            out[2 * i + 1] = half_bits_to_float(pairs[i] >> 16);
        }
    }
};

template <>
struct WeightLoader<WeightType::bf16> {
    __device__ static void load(const WeightMatrix& w, std::uint32_t row, std::uint32_t column,
                                float (&out)[kLoadColumns]) {
        const uint4 words = weight_load<uint4>(w, row, column);
        const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
        for (int i = 0; i < 4; ++i) {
            out[2 * i] = float_of_bits(pairs[i] << 16);
            out[2 * i + 1] = float_of_bits(pairs[i] & 0xFFFF0000U);
        }
    }
};

template <>
struct WeightLoader<WeightType::q8_0> {
    __device__ static void load(const WeightMatrix& w, std::uint32_t row, std::uint32_t column,
                                float (&out)[kLoadColumns]) {
        const uint2 words = weight_load<uint2>(w, row, column);
        const float d = half_bits_to_float(w.scales[weight_group(w, row, column)]);
        for (int i = 0; i < 8; ++i) {
            const std::uint32_t word = i < 4 ? words.x : words.y;
            out[i] = static_cast<float>(static_cast<std::int8_t>(word >> (i % 4 * 8))) * d;
        }
    }
};

template <>
struct WeightLoader<WeightType::q4_0> {
    __device__ static void load(const WeightMatrix& w, std::uint32_t row, std::uint32_t column,
                                float (&out)[kLoadColumns]) {
        const auto word = weight_load<std::uint32_t>(w, row, column);
        const float d = half_bits_to_float(w.scales[weight_group(w, row, column)]);
        for (int i = 0; i < 8; ++i)
            out[i] = static_cast<float>(static_cast<int>(word >> (4 * i) & 15U) - 8) * d;
    }
};

template <>
struct WeightLoader<WeightType::q4_1> {
    __device__ static void load(const WeightMatrix& w, std::uint32_t row, std::uint32_t column,
                                float (&out)[kLoadColumns]) {
        const auto word = weight_load<std::uint32_t>(w, row, column);
        // d and m, adjacent, as one load.
        const std::uint32_t scales =
            reinterpret_cast<const std::uint32_t*>(w.scales)[weight_group(w, row, column)];
        const float d = half_bits_to_float(scales & 0xFFFFU);
        const float m = half_bits_to_float(scales >> 16);
        for (int i = 0; i < 8; ++i)
            out[i] = fmaf(static_cast<float>(word >> (4 * i) & 15U), d, m);
    }
};

// Calls visit.template operator()<type>() for the matrix's type.
template <class Visit>
void for_weight_type(WeightType type, Visit visit) {
    switch (type) {
        case WeightType::f32:
            return visit.template operator()<WeightType::f32>();
        case WeightType::f16:
            return visit.template operator()<WeightType::f16>();
        case WeightType::bf16:
            return visit.template operator()<WeightType::bf16>();
        case WeightType::q8_0:
            return visit.template operator()<WeightType::q8_0>();
        case WeightType::q4_0:
            return visit.template operator()<WeightType::q4_0>();
        case WeightType::q4_1:
            return visit.template operator()<WeightType::q4_1>();
        case WeightType::q4_k:
            return visit.template operator()<WeightType::q4_k>();
        case WeightType::q5_k:
            return visit.template operator()<WeightType::q5_k>();
        case WeightType::q6_k:
            return visit.template operator()<WeightType::q6_k>();
    }
}

}  // namespace troupe::gpu
