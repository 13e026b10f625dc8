// Weights of GGML's K formats, eight columns at a time. Their numbers have 4, 5 or 6 bits: the
// lowest four lie as those of q4_1, the others in a plane of their own.
#pragma once

#include <cstring>

#include "gpu/device.cuh"
#include "gpu/kernels/weights.hpp"

namespace troupe::gpu {

// What a group of 32 columns has in common: half d, half minimum; and two bytes, which are scale
// and minimum's factor (q4_k, q5_k), or the scales of the first and the last 16 columns (q6_k).
struct KGroup {
    std::uint32_t halves;
    std::uint32_t factors;
};

__device__ __forceinline__ KGroup load_k_group(const WeightMatrix& w, std::size_t group) {
    const std::uint16_t* const of_eight = w.scales + group / 8 * kSuperblockScales;
    return {*reinterpret_cast<const std::uint32_t*>(of_eight), of_eight[2 + group % 8]};
}

// Bits above the fourth of columns 8 `eighth` .. + 7 of a group, those of a column together.
template <WeightType kType>
__device__ __forceinline__ std::uint32_t load_k_high(const WeightMatrix& w, std::size_t group,
                                                     unsigned eighth) {
    if constexpr (kType == WeightType::q5_k) {
        return static_cast<const std::uint8_t*>(w.high)[group * 4 + eighth];
    } else if constexpr (kType == WeightType::q6_k) {
        return static_cast<const std::uint16_t*>(w.high)[group * 4 + eighth];
    } else {
        return 0;
    }
}

// Number n of a column stands for fma(n, step, offset): exact but for that one rounding.
struct KStep {
    float step, offset;
};

template <WeightType kType>
__device__ __forceinline__ KStep k_step(const KGroup& group, unsigned eighth) {
    const auto half = [&](unsigned shift) {
        return __half2float(__ushort_as_half(static_cast<unsigned short>(group.halves >> shift)));
    };
    if constexpr (kType == WeightType::q6_k) {
        const auto scale = static_cast<std::int8_t>(group.factors >> (eighth / 2 * 8));
        const float step = half(0) * static_cast<float>(scale);
        return {step, -32.0F * step};
    } else {
        return {half(0) * static_cast<float>(group.factors & 255U),
                -(half(16) * static_cast<float>(group.factors >> 8))};
    }
}

// The value of column i of eight; `low` has their lowest four bits. A number behind the exponent of
// 2^23 is 2^23 + n: cheaper than a conversion.
template <WeightType kType>
__device__ __forceinline__ float k_value(std::uint32_t low, std::uint32_t high, unsigned i,
                                         const KStep& step) {
    std::uint32_t bits = (low >> (4 * i) & 15U) | 0x4B000000U;
    if constexpr (kType == WeightType::q5_k) bits |= (high >> i & 1U) << 4;
    if constexpr (kType == WeightType::q6_k) bits |= (high >> (2 * i) & 3U) << 4;
    float number;
    memcpy(&number, &bits, sizeof number);
    return fmaf(number - 8388608.0F, step.step, step.offset);
}

}  // namespace troupe::gpu
