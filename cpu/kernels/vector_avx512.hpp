// Sixteen float lanes in one AVX-512 register. See vector_math.hpp for what each operation means.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/immintrin_quiet.hpp"

namespace troupe::cpu {
namespace {

struct Avx512Vector {
    static constexpr std::size_t registers = 24;
    static constexpr std::size_t attention_tile = 12;
    static constexpr std::size_t matmul_rows = 6, matmul_panels = 2;

    __m512 v;

    static __mmask16 first(std::size_t count) { return static_cast<__mmask16>((1U << count) - 1); }

    static Avx512Vector set(float x) { return {_mm512_set1_ps(x)}; }
    static Avx512Vector load(const float* x) { return {_mm512_loadu_ps(x)}; }
    static Avx512Vector load_partial(const float* x, std::size_t count) {
        return {_mm512_maskz_loadu_ps(first(count), x)};
    }
    static Avx512Vector load_half(const std::uint16_t* x) {
        return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)))};
    }
    static Avx512Vector load_half_partial(const std::uint16_t* x, std::size_t count) {
        return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first(count), x))};
    }
    static Avx512Vector load_bfloat16(const std::uint16_t* x) {
        const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
        return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16))};
    }
    static Avx512Vector load_bytes(const std::int8_t* x) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
        return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
    }
    static Avx512Vector load_bytes_partial(const std::int8_t* x, std::size_t count) {
        return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(count), x)))};
    }
    template <unsigned Bits>
    static Avx512Vector load_bits(const std::byte* x, std::size_t index) {
        __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
        bytes = _mm_srl_epi16(bytes, _mm_cvtsi32_si128(static_cast<int>(Bits * index)));
        bytes = _mm_and_si128(bytes, _mm_set1_epi8((1 << Bits) - 1));
        return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))};
    }
    static Avx512Vector load_quants(const std::byte* words, unsigned shift, std::uint32_t mask) {
        const __m128i count = _mm_cvtsi32_si128(static_cast<int>(shift));
        const __m512i shifted = _mm512_srl_epi32(_mm512_loadu_si512(words), count);
        return {_mm512_cvtepi32_ps(
            _mm512_and_si512(shifted, _mm512_set1_epi32(static_cast<int>(mask))))};
    }
    void store(float* out) const { _mm512_storeu_ps(out, v); }
    void store_partial(float* out, std::size_t count) const {
        _mm512_mask_storeu_ps(out, first(count), v);
    }
    void store_half_partial(std::uint16_t* out, std::size_t count) const {
        _mm256_mask_storeu_epi16(out, first(count),
                                 _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }

    friend Avx512Vector operator+(Avx512Vector a, Avx512Vector b) { return {a.v + b.v}; }
    friend Avx512Vector operator-(Avx512Vector a, Avx512Vector b) { return {a.v - b.v}; }
    friend Avx512Vector operator*(Avx512Vector a, Avx512Vector b) { return {a.v * b.v}; }
    friend Avx512Vector operator/(Avx512Vector a, Avx512Vector b) { return {a.v / b.v}; }
    static Avx512Vector fma(Avx512Vector a, Avx512Vector b, Avx512Vector c) {
        return {_mm512_fmadd_ps(a.v, b.v, c.v)};
    }
    static Avx512Vector max(Avx512Vector a, Avx512Vector b) { return {_mm512_max_ps(a.v, b.v)}; }
    static Avx512Vector min(Avx512Vector a, Avx512Vector b) { return {_mm512_min_ps(a.v, b.v)}; }
    static Avx512Vector zero_where_less(Avx512Vector x, Avx512Vector limit, Avx512Vector y) {
        return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, limit.v, _CMP_NLT_UQ), y.v)};
    }
    static Avx512Vector add_to_exponent(Avx512Vector x, Avx512Vector biased) {
        return {_mm512_castsi512_ps(_mm512_add_epi32(
            _mm512_castps_si512(x.v), _mm512_slli_epi32(_mm512_castps_si512(biased.v), 23)))};
    }
    static Avx512Vector rotate_pairs(Avx512Vector x, Avx512Vector angles) {
        const __m512 swapped = _mm512_permute_ps(x.v, 0xB1);
        const __m512 cross = swapped * _mm512_movehdup_ps(angles.v);
        return {_mm512_fmaddsub_ps(x.v, _mm512_moveldup_ps(angles.v), cross)};
    }
    [[nodiscard]] std::uint32_t equal_mask(Avx512Vector other) const {
        return _mm512_cmp_ps_mask(v, other.v, _CMP_EQ_OQ);
    }

    [[nodiscard]] std::uint32_t larger_mask(Avx512Vector other) const {
        return _mm512_cmp_ps_mask(_mm512_abs_ps(v), other.v, _CMP_GT_OQ);
    }
    [[nodiscard]] Avx512Vector zero_where_larger(Avx512Vector other) const {
        return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(_mm512_abs_ps(v), other.v, _CMP_NGT_UQ), v)};
    }
    [[nodiscard]] std::uint32_t sign_mask() const {
        return _mm512_movepi32_mask(_mm512_castps_si512(v));
    }

    [[nodiscard]] float sum() const {
        const __m256 eight = _mm512_castps512_ps256(v) + _mm512_extractf32x8_ps(v, 1);
        const __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
        const __m128 two = four + _mm_movehl_ps(four, four);
        return two[0] + two[1];
    }
    [[nodiscard]] float largest() const { return _mm512_reduce_max_ps(v); }
    static std::uint32_t largest_magnitude_bits(Avx512Vector a, Avx512Vector b) {
        const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
        return _mm512_reduce_max_epu32(
            _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a.v), magnitude),
                             _mm512_and_si512(_mm512_castps_si512(b.v), magnitude)));
    }
    static std::int32_t round_to_bytes(Avx512Vector a, Avx512Vector b, std::int8_t* out) {
        const __m512i low = _mm512_cvtps_epi32(a.v), high = _mm512_cvtps_epi32(b.v);
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(low));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16), _mm512_cvtepi32_epi8(high));
        return _mm512_reduce_add_epi32(_mm512_add_epi32(low, high));
    }
};

}  // namespace
}  // namespace troupe::cpu
