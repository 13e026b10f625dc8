// 32 consecutive weights of a row (a group, where the type has groups), as a lane loads them and as
// the halves that it gives to tensor units. Of eight columns the pairs are 0 4, 1 5, 2 6, 3 7: then
// four-bit numbers come out of their word two by two, by one shift and one mask.
#pragma once

#include "gpu/device.cuh"
#include "gpu/kernels/half_pairs.cuh"
#include "gpu/kernels/k_weights.cuh"
#include "gpu/kernels/weights.cuh"

namespace troupe::gpu {

__device__ __forceinline__ __half2 both_halves(std::uint16_t bits) {
    return halves_of(std::uint32_t{bits} * 0x10001U);
}

// `kWords` of 16 bytes, and the group's scales as they lie, d in the lower half; of the K types
// what is beside them.
template <unsigned kWords>
struct RawWeights {
    uint4 words[kWords];
    std::uint32_t scales;
    std::uint32_t factors;
    uint2 high;
};

__device__ __forceinline__ std::uint32_t word_of(const uint4& words, unsigned i) {
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

// kWords, and expand(): the pairs of columns 8 `eighth` .. 8 `eighth` + 7 of the 32. The K types
// have this one: a value is rounded to float32, then to a half.
template <WeightType kType>
struct HalfWeights {
    static_assert(is_k_type(kType));
    static constexpr unsigned kWords = 1;
    __device__ static void expand(const RawWeights<kWords>& raw, unsigned eighth,
                                  HalfPair (&out)[4]) {
        const std::uint32_t word = word_of(raw.words[0], eighth);
        const KStep step = k_step<kType>({raw.scales, raw.factors}, eighth);
        const std::uint32_t high = kType == WeightType::q5_k ? raw.high.x >> (8 * eighth)
                                   : eighth < 2              ? raw.high.x >> (16 * eighth)
                                                             : raw.high.y >> (16 * (eighth - 2));
#pragma unroll
        for (unsigned i = 0; i < 4; ++i)
            out[i] = bits_of(__floats2half2_rn(k_value<kType>(word, high, i, step),
                                               k_value<kType>(word, high, i + 4, step)));
    }
};

template <>
struct HalfWeights<WeightType::f16> {
    static constexpr unsigned kWords = 4;
    template <unsigned kLoaded>
    __device__ static void expand(const RawWeights<kLoaded>& raw, unsigned eighth,
                                  HalfPair (&out)[4]) {
        const uint4 w = raw.words[eighth];
        out[0] = __byte_perm(w.x, w.z, 0x5410);
        out[1] = __byte_perm(w.x, w.z, 0x7632);
        out[2] = __byte_perm(w.y, w.w, 0x5410);
        out[3] = __byte_perm(w.y, w.w, 0x7632);
    }
};

template <>
struct HalfWeights<WeightType::bf16> {
    static constexpr unsigned kWords = 4;
    __device__ static float lower(std::uint32_t pair) { return as_float(pair << 16); }
    __device__ static float upper(std::uint32_t pair) { return as_float(pair & 0xFFFF0000U); }
    __device__ static float as_float(std::uint32_t bits) {
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    template <unsigned kLoaded>
    __device__ static void expand(const RawWeights<kLoaded>& raw, unsigned eighth,
                                  HalfPair (&out)[4]) {
        const uint4 w = raw.words[eighth];
        out[0] = bits_of(__floats2half2_rn(lower(w.x), lower(w.z)));
        out[1] = bits_of(__floats2half2_rn(upper(w.x), upper(w.z)));
        out[2] = bits_of(__floats2half2_rn(lower(w.y), lower(w.w)));
        out[3] = bits_of(__floats2half2_rn(upper(w.y), upper(w.w)));
    }
};

template <>
struct HalfWeights<WeightType::q8_0> {
    static constexpr unsigned kWords = 2;
    __device__ static void expand(const RawWeights<kWords>& raw, unsigned eighth,
                                  HalfPair (&out)[4]) {
        // n + 128 without a sign, behind the upper byte of 1024.
        const uint4 w = raw.words[eighth / 2];
        const std::uint32_t first = (eighth % 2 == 0 ? w.x : w.z) ^ 0x80808080U;
        const std::uint32_t last = (eighth % 2 == 0 ? w.y : w.w) ^ 0x80808080U;
        const __half2 d = both_halves(static_cast<std::uint16_t>(raw.scales));
        const __half2 offset = halves_of(0x64806480U);  // 1152
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            const std::uint32_t bytes = __byte_perm(first, last, 0x0400U + 0x0101U * i);
            const HalfPair number = (bytes & 0x00FF00FFU) | kHalf1024;
            out[i] = bits_of(__hmul2(__hsub2(halves_of(number), offset), d));
        }
    }
};

// Number i and number i + 4 of a word of eight, each as 1024 + n.
__device__ __forceinline__ __half2 nibbles_of(std::uint32_t word, unsigned i) {
    return halves_of((word >> (4 * i) & 0x000F000FU) | kHalf1024);
}

template <>
struct HalfWeights<WeightType::q4_0> {
    static constexpr unsigned kWords = 1;
    __device__ static void expand(const RawWeights<kWords>& raw, unsigned eighth,
                                  HalfPair (&out)[4]) {
        const std::uint32_t word = word_of(raw.words[0], eighth);
        const __half2 d = both_halves(static_cast<std::uint16_t>(raw.scales));
        const __half2 offset = halves_of(0x64086408U);  // 1032
#pragma unroll
        for (unsigned i = 0; i < 4; ++i)
            out[i] = bits_of(__hmul2(__hsub2(nibbles_of(word, i), offset), d));
    }
};

template <>
struct HalfWeights<WeightType::q4_1> {
    static constexpr unsigned kWords = 1;
    __device__ static void expand(const RawWeights<kWords>& raw, unsigned eighth,
                                  HalfPair (&out)[4]) {
        const std::uint32_t word = word_of(raw.words[0], eighth);
        const __half2 d = both_halves(static_cast<std::uint16_t>(raw.scales));
        const __half2 m = both_halves(static_cast<std::uint16_t>(raw.scales >> 16));
        const __half2 offset = halves_of(kHalf1024);
#pragma unroll
        for (unsigned i = 0; i < 4; ++i)
            out[i] = bits_of(__hfma2(__hsub2(nibbles_of(word, i), offset), d, m));
    }
};

// Columns `column` .. `column` + 31 of a row; zeros beyond the matrix.
template <WeightType kType>
__device__ __forceinline__ RawWeights<HalfWeights<kType>::kWords> load_raw(const WeightMatrix& w,
                                                                           std::uint32_t row,
                                                                           std::uint32_t column) {
    constexpr unsigned kWords = HalfWeights<kType>::kWords;
    RawWeights<kWords> raw{};
    if (column >= w.columns) return raw;
    const std::size_t group = (std::size_t{row} * w.columns + column) / kGroupColumns;
    const uint4* const at = static_cast<const uint4*>(w.data) + group * kWords;
#pragma unroll
    for (unsigned i = 0; i < kWords; ++i)
        raw.words[i] = at[i];
    if constexpr (is_k_type(kType)) {
        const KGroup of_group = load_k_group(w, group);
        raw.scales = of_group.halves;
        raw.factors = of_group.factors;
        if constexpr (kType == WeightType::q5_k)
            raw.high.x = static_cast<const std::uint32_t*>(w.high)[group];
        if constexpr (kType == WeightType::q6_k)
            raw.high = static_cast<const uint2*>(w.high)[group];
    } else if constexpr (scales_per_group(kType) == 2) {
        raw.scales = reinterpret_cast<const std::uint32_t*>(w.scales)[group];
    } else if constexpr (scales_per_group(kType) == 1) {
        raw.scales = w.scales[group];
    }
    return raw;
}

// Calls visit.template operator()<type>() for the matrix's type, which is not f32.
template <class Visit>
void for_half_weight_type(WeightType type, Visit visit) {
    for_weight_type(type, [&]<WeightType Type>() {
        if constexpr (Type != WeightType::f32) visit.template operator()<Type>();
    });
}

}  // namespace troupe::gpu
