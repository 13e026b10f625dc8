// Sixteen float lanes in portable code: what every other set must equal. See vector_math.hpp for
// the operations a vector type offers.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/kernels/half.hpp"

namespace troupe::cpu {
namespace {

struct PlainVector {
    static constexpr std::size_t registers = 12;
    static constexpr std::size_t attention_tile = 4;
    static constexpr std::size_t matmul_rows = 4, matmul_panels = 1;

    float lane[16];

    template <class Function>
    static PlainVector each(Function function) {
        PlainVector out;
        for (std::size_t i = 0; i < 16; ++i)
            out.lane[i] = function(i);
        return out;
    }

    static PlainVector set(float x) {
        return each([=](std::size_t) { return x; });
    }
    static PlainVector load(const float* x) {
        return each([=](std::size_t i) { return x[i]; });
    }
    static PlainVector load_partial(const float* x, std::size_t count) {
        return each([=](std::size_t i) { return i < count ? x[i] : 0.0F; });
    }
    static PlainVector load_half(const std::uint16_t* x) {
        return each([=](std::size_t i) { return half_to_float(x[i]); });
    }
    static PlainVector load_half_partial(const std::uint16_t* x, std::size_t count) {
        return each([=](std::size_t i) { return i < count ? half_to_float(x[i]) : 0.0F; });
    }
    static PlainVector load_bfloat16(const std::uint16_t* x) {
        return each([=](std::size_t i) { return bfloat16_to_float(x[i]); });
    }
    static PlainVector load_bytes(const std::int8_t* x) {
        return each([=](std::size_t i) { return static_cast<float>(x[i]); });
    }
    static PlainVector load_bytes_partial(const std::int8_t* x, std::size_t count) {
        return each([=](std::size_t i) { return i < count ? static_cast<float>(x[i]) : 0.0F; });
    }
    template <unsigned Bits>
    static PlainVector load_bits(const std::byte* x, std::size_t index) {
        return each([=](std::size_t i) {
            return static_cast<float>(static_cast<unsigned>(x[i]) >> (Bits * index) &
                                      ((1U << Bits) - 1));
        });
    }
    static PlainVector load_quants(const std::byte* words, unsigned shift, std::uint32_t mask) {
        return each([=](std::size_t i) {
            std::uint32_t word;
            std::memcpy(&word, words + 4 * i, 4);
            return static_cast<float>((word >> shift) & mask);
        });
    }
    void store(float* out) const { store_partial(out, 16); }
    void store_partial(float* out, std::size_t count) const {
        for (std::size_t i = 0; i < count; ++i)
            out[i] = lane[i];
    }
    void store_half_partial(std::uint16_t* out, std::size_t count) const {
        for (std::size_t i = 0; i < count; ++i)
            out[i] = float_to_half(lane[i]);
    }

    friend PlainVector operator+(PlainVector a, PlainVector b) {
        return each([&](std::size_t i) { return a.lane[i] + b.lane[i]; });
    }
    friend PlainVector operator-(PlainVector a, PlainVector b) {
        return each([&](std::size_t i) { return a.lane[i] - b.lane[i]; });
    }
    friend PlainVector operator*(PlainVector a, PlainVector b) {
        return each([&](std::size_t i) { return a.lane[i] * b.lane[i]; });
    }
    friend PlainVector operator/(PlainVector a, PlainVector b) {
        return each([&](std::size_t i) { return a.lane[i] / b.lane[i]; });
    }
    static PlainVector fma(PlainVector a, PlainVector b, PlainVector c) {
        return each([&](std::size_t i) { return std::fma(a.lane[i], b.lane[i], c.lane[i]); });
    }
    static PlainVector max(PlainVector a, PlainVector b) {
        return each([&](std::size_t i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
    }
    static PlainVector min(PlainVector a, PlainVector b) {
        return each([&](std::size_t i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; });
    }
    static PlainVector zero_where_less(PlainVector x, PlainVector limit, PlainVector y) {
        return each([&](std::size_t i) { return x.lane[i] < limit.lane[i] ? 0.0F : y.lane[i]; });
    }
    static PlainVector add_to_exponent(PlainVector x, PlainVector biased) {
        return each([&](std::size_t i) {
            return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x.lane[i]) +
                                        (std::bit_cast<std::uint32_t>(biased.lane[i]) << 23));
        });
    }
    static PlainVector rotate_pairs(PlainVector x, PlainVector angles) {
        return each([&](std::size_t i) {
            const float cos = angles.lane[i & ~std::size_t{1}], sin = angles.lane[i | 1];
            const float cross = x.lane[i ^ 1] * sin;
            return std::fma(x.lane[i], cos, i % 2 == 0 ? -cross : cross);
        });
    }
    [[nodiscard]] std::uint32_t equal_mask(PlainVector other) const {
        std::uint32_t mask = 0;
        for (std::size_t i = 0; i < 16; ++i)
            mask |= std::uint32_t{lane[i] == other.lane[i]} << i;
        return mask;
    }

    [[nodiscard]] std::uint32_t larger_mask(PlainVector other) const {
        std::uint32_t mask = 0;
        for (std::size_t i = 0; i < 16; ++i)
            mask |= std::uint32_t{std::abs(lane[i]) > other.lane[i]} << i;
        return mask;
    }
    [[nodiscard]] PlainVector zero_where_larger(PlainVector other) const {
        return each(
            [&](std::size_t i) { return std::abs(lane[i]) > other.lane[i] ? 0.0F : lane[i]; });
    }
    [[nodiscard]] std::uint32_t sign_mask() const {
        std::uint32_t mask = 0;
        for (std::size_t i = 0; i < 16; ++i)
            mask |= std::uint32_t{std::signbit(lane[i])} << i;
        return mask;
    }

    [[nodiscard]] float sum() const {
        float s[16];
        store(s);
        for (std::size_t step = 8; step > 0; step /= 2) {
            for (std::size_t i = 0; i < step; ++i)
                s[i] = s[i] + s[i + step];
        }
        return s[0];
    }
    [[nodiscard]] float largest() const {
        float m = lane[0];
        for (std::size_t i = 1; i < 16; ++i)
            m = lane[i] > m ? lane[i] : m;
        return m;
    }
    static std::uint32_t largest_magnitude_bits(PlainVector a, PlainVector b) {
        std::uint32_t bits = 0;
        for (const PlainVector& v : {a, b}) {
            for (const float x : v.lane) {
                const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFU;
                bits = magnitude > bits ? magnitude : bits;
            }
        }
        return bits;
    }
    static std::int32_t round_to_bytes(PlainVector a, PlainVector b, std::int8_t* out) {
        std::int32_t total = 0;
        for (std::size_t i = 0; i < 32; ++i) {
            // Round half to even: the default mode, which nothing here changes.
            const auto q =
                static_cast<std::int32_t>(std::nearbyint(i < 16 ? a.lane[i] : b.lane[i - 16]));
            out[i] = static_cast<std::int8_t>(q);
            total += q;
        }
        return total;
    }
};

}  // namespace
}  // namespace troupe::cpu
