// Sixteen float lanes in four NEON registers. See vector_math.hpp for what each operation means.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {
namespace {

struct NeonVector {
    static constexpr std::size_t registers = 6;
    static constexpr std::size_t attention_tile = 6;
    static constexpr std::size_t matmul_rows = 6, matmul_panels = 1;

    float32x4_t a, b, c, d;  // lanes 0..3, 4..7, 8..11, 12..15

    template <class Function>
    [[gnu::always_inline]] static NeonVector each(Function function, NeonVector x, NeonVector y) {
        return {function(x.a, y.a), function(x.b, y.b), function(x.c, y.c), function(x.d, y.d)};
    }
    static float32x4_t as_float(uint32x4_t x) { return vreinterpretq_f32_u32(x); }
    static uint32x4_t as_bits(float32x4_t x) { return vreinterpretq_u32_f32(x); }

    // The first `count` of sixteen, and zeros.
    template <class Element>
    struct Tail {
        Element values[16] = {};
        Tail(const Element* x, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i)
                values[i] = x[i];
        }
    };

    static NeonVector set(float x) {
        const float32x4_t four = vdupq_n_f32(x);
        return {four, four, four, four};
    }
    static NeonVector load(const float* x) {
        return {vld1q_f32(x), vld1q_f32(x + 4), vld1q_f32(x + 8), vld1q_f32(x + 12)};
    }
    static NeonVector load_partial(const float* x, std::size_t count) {
        return load(Tail(x, count).values);
    }
    static NeonVector load_half(const std::uint16_t* x) {
        const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(x));
        const float16x8_t high = vreinterpretq_f16_u16(vld1q_u16(x + 8));
        return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low),
                vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)};
    }
    static NeonVector load_half_partial(const std::uint16_t* x, std::size_t count) {
        return load_half(Tail(x, count).values);
    }
    static NeonVector load_bfloat16(const std::uint16_t* x) {
        const uint16x8_t low = vld1q_u16(x), high = vld1q_u16(x + 8);
        return {as_float(vshll_n_u16(vget_low_u16(low), 16)), as_float(vshll_high_n_u16(low, 16)),
                as_float(vshll_n_u16(vget_low_u16(high), 16)),
                as_float(vshll_high_n_u16(high, 16))};
    }
    static NeonVector load_bytes(const std::int8_t* x) {
        const int8x16_t bytes = vld1q_s8(x);
        const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
        return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
    }
    static NeonVector load_bytes_partial(const std::int8_t* x, std::size_t count) {
        return load_bytes(Tail(x, count).values);
    }
    template <unsigned Bits>
    static NeonVector load_bits(const std::byte* x, std::size_t index) {
        uint8x16_t bytes = vld1q_u8(reinterpret_cast<const std::uint8_t*>(x));
        bytes = vshlq_u8(bytes, vdupq_n_s8(static_cast<std::int8_t>(0 - Bits * index)));
        bytes = vandq_u8(bytes, vdupq_n_u8((1U << Bits) - 1));
        const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
        return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
                vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))};
    }
    static NeonVector load_quants(const std::byte* words, unsigned shift, std::uint32_t mask) {
        const int32x4_t left = vdupq_n_s32(-static_cast<int>(shift));
        const uint32x4_t wanted = vdupq_n_u32(mask);
        const auto quants = [&](std::size_t first) {
            const auto* at = reinterpret_cast<const std::uint8_t*>(words + 4 * first);
            const uint32x4_t four = vreinterpretq_u32_u8(vld1q_u8(at));
            return vcvtq_f32_u32(vandq_u32(vshlq_u32(four, left), wanted));
        };
        return {quants(0), quants(4), quants(8), quants(12)};
    }
    void store(float* out) const {
        vst1q_f32(out, a);
        vst1q_f32(out + 4, b);
        vst1q_f32(out + 8, c);
        vst1q_f32(out + 12, d);
    }
    void store_partial(float* out, std::size_t count) const {
        float values[16];
        store(values);
        for (std::size_t i = 0; i < count; ++i)
            out[i] = values[i];
    }
    void store_half_partial(std::uint16_t* out, std::size_t count) const {
        const float16x8_t low = vcvt_high_f16_f32(vcvt_f16_f32(a), b);
        const float16x8_t high = vcvt_high_f16_f32(vcvt_f16_f32(c), d);
        std::uint16_t halves[16];
        vst1q_u16(halves, vreinterpretq_u16_f16(low));
        vst1q_u16(halves + 8, vreinterpretq_u16_f16(high));
        for (std::size_t i = 0; i < count; ++i)
            out[i] = halves[i];
    }

    friend NeonVector operator+(NeonVector x, NeonVector y) {
        return {x.a + y.a, x.b + y.b, x.c + y.c, x.d + y.d};
    }
    friend NeonVector operator-(NeonVector x, NeonVector y) {
        return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d};
    }
    friend NeonVector operator*(NeonVector x, NeonVector y) {
        return {x.a * y.a, x.b * y.b, x.c * y.c, x.d * y.d};
    }
    friend NeonVector operator/(NeonVector x, NeonVector y) {
        return {x.a / y.a, x.b / y.b, x.c / y.c, x.d / y.d};
    }
    static NeonVector fma(NeonVector x, NeonVector y, NeonVector z) {
        return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                vfmaq_f32(z.d, x.d, y.d)};
    }
    // The processor's own maximum of a NaN and a number would be the NaN.
    static NeonVector max(NeonVector x, NeonVector y) {
        return each([](float32x4_t p, float32x4_t q) { return vbslq_f32(vcgtq_f32(p, q), p, q); },
                    x, y);
    }
    static NeonVector min(NeonVector x, NeonVector y) {
        return each([](float32x4_t p, float32x4_t q) { return vbslq_f32(vcltq_f32(p, q), p, q); },
                    x, y);
    }
    static float32x4_t zero_where(uint32x4_t mask, float32x4_t x) {
        return as_float(vbicq_u32(as_bits(x), mask));
    }
    static NeonVector zero_where_less(NeonVector x, NeonVector limit, NeonVector y) {
        return {zero_where(vcltq_f32(x.a, limit.a), y.a), zero_where(vcltq_f32(x.b, limit.b), y.b),
                zero_where(vcltq_f32(x.c, limit.c), y.c), zero_where(vcltq_f32(x.d, limit.d), y.d)};
    }
    static NeonVector add_to_exponent(NeonVector x, NeonVector biased) {
        const auto add = [](float32x4_t p, float32x4_t n) {
            return as_float(vaddq_u32(as_bits(p), vshlq_n_u32(as_bits(n), 23)));
        };
        return each(add, x, biased);
    }
    static NeonVector rotate_pairs(NeonVector x, NeonVector angles) {
        const auto rotate = [](float32x4_t pairs, float32x4_t angle) {
            const uint32x4_t first_of_pair = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000U));
            const float32x4_t cross = vrev64q_f32(pairs) * vtrn2q_f32(angle, angle);
            const float32x4_t signed_cross = as_float(veorq_u32(as_bits(cross), first_of_pair));
            return vfmaq_f32(signed_cross, pairs, vtrn1q_f32(angle, angle));
        };
        return each(rotate, x, angles);
    }

    // Bit i: lane i of sixteen is all ones.
    static std::uint32_t bits_of(uint32x4_t p, uint32x4_t q, uint32x4_t r, uint32x4_t s) {
        static constexpr std::uint8_t bit[16] = {1, 2, 4, 8, 16, 32, 64, 128,
                                                 1, 2, 4, 8, 16, 32, 64, 128};
        const uint16x8_t low = vmovn_high_u32(vmovn_u32(p), q);
        const uint16x8_t high = vmovn_high_u32(vmovn_u32(r), s);
        const uint8x16_t bits = vandq_u8(vmovn_high_u16(vmovn_u16(low), high), vld1q_u8(bit));
        return std::uint32_t{vaddv_u8(vget_low_u8(bits))} |
               std::uint32_t{vaddv_u8(vget_high_u8(bits))} << 8;
    }
    [[nodiscard]] std::uint32_t equal_mask(NeonVector other) const {
        return bits_of(vceqq_f32(a, other.a), vceqq_f32(b, other.b), vceqq_f32(c, other.c),
                       vceqq_f32(d, other.d));
    }
    static uint32x4_t larger(float32x4_t x, float32x4_t limit) {
        return vcgtq_f32(vabsq_f32(x), limit);
    }
    [[nodiscard]] std::uint32_t larger_mask(NeonVector other) const {
        return bits_of(larger(a, other.a), larger(b, other.b), larger(c, other.c),
                       larger(d, other.d));
    }
    [[nodiscard]] NeonVector zero_where_larger(NeonVector other) const {
        return each(
            [](float32x4_t x, float32x4_t limit) { return zero_where(larger(x, limit), x); }, *this,
            other);
    }
    [[nodiscard]] std::uint32_t sign_mask() const {
        const auto negative = [](float32x4_t x) { return vcltzq_s32(vreinterpretq_s32_f32(x)); };
        return bits_of(negative(a), negative(b), negative(c), negative(d));
    }

    [[nodiscard]] float sum() const {
        const float32x4_t four = (a + c) + (b + d);
        const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
        return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
    }
    [[nodiscard]] float largest() const {
        const NeonVector halves = max({a, b, a, b}, {c, d, c, d});
        const float32x4_t four = vbslq_f32(vcgtq_f32(halves.a, halves.b), halves.a, halves.b);
        return vmaxvq_f32(four);
    }
    static std::uint32_t largest_magnitude_bits(NeonVector x, NeonVector y) {
        const auto larger_of = [](float32x4_t p, float32x4_t q) {
            return vmaxq_u32(as_bits(vabsq_f32(p)), as_bits(vabsq_f32(q)));
        };
        return vmaxvq_u32(vmaxq_u32(vmaxq_u32(larger_of(x.a, x.b), larger_of(x.c, x.d)),
                                    vmaxq_u32(larger_of(y.a, y.b), larger_of(y.c, y.d))));
    }
    static std::int32_t round_to_bytes(NeonVector x, NeonVector y, std::int8_t* out) {
        int32x4_t sum = vdupq_n_s32(0);
        const auto round = [&](float32x4_t p, float32x4_t q) {
            const int32x4_t first = vcvtnq_s32_f32(p), second = vcvtnq_s32_f32(q);
            sum = vaddq_s32(sum, vaddq_s32(first, second));
            return vmovn_high_s32(vmovn_s32(first), second);
        };
        const int16x8_t low[2] = {round(x.a, x.b), round(x.c, x.d)};
        vst1q_s8(out, vmovn_high_s16(vmovn_s16(low[0]), low[1]));
        const int16x8_t high[2] = {round(y.a, y.b), round(y.c, y.d)};
        vst1q_s8(out + 16, vmovn_high_s16(vmovn_s16(high[0]), high[1]));
        return vaddvq_s32(sum);
    }
};

}  // namespace
}  // namespace troupe::cpu
