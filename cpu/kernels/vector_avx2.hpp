// Sixteen float lanes in two AVX2 registers. See vector_math.hpp for what each operation means.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {
namespace {

struct Avx2Vector {
    static constexpr std::size_t registers = 6;
    static constexpr std::size_t attention_tile = 6;
    static constexpr std::size_t matmul_rows = 6, matmul_panels = 1;

    __m256 low, high;  // lanes 0..7, 8..15

    static __m256i first(std::size_t count) {
        const auto limit = static_cast<int>(count);
        return _mm256_cmpgt_epi32(_mm256_set1_epi32(limit),
                                  _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    }
    static std::size_t above_eight(std::size_t count) { return count > 8 ? count - 8 : 0; }
    static __m256 as_float(__m256i x) { return _mm256_castsi256_ps(x); }
    static __m256i as_int(__m256 x) { return _mm256_castps_si256(x); }

    static Avx2Vector set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
    static Avx2Vector load(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
    static Avx2Vector load_partial(const float* x, std::size_t count) {
        if (count <= 8) return {_mm256_maskload_ps(x, first(count)), _mm256_setzero_ps()};
        return {_mm256_loadu_ps(x), _mm256_maskload_ps(x + 8, first(count - 8))};
    }
    static Avx2Vector load_half(const std::uint16_t* x) {
        const auto* halves = reinterpret_cast<const __m128i*>(x);
        return {_mm256_cvtph_ps(_mm_loadu_si128(halves)),
                _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
    }
    static Avx2Vector load_half_partial(const std::uint16_t* x, std::size_t count) {
        alignas(32) std::uint16_t halves[16] = {};
        for (std::size_t i = 0; i < count; ++i)
            halves[i] = x[i];
        return load_half(halves);
    }
    static Avx2Vector load_bfloat16(const std::uint16_t* x) {
        const auto widen = [](const std::uint16_t* eight) {
            const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(eight));
            return as_float(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
        };
        return {widen(x), widen(x + 8)};
    }
    static Avx2Vector load_bytes(const std::int8_t* x) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
        return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
    }
    static Avx2Vector load_bytes_partial(const std::int8_t* x, std::size_t count) {
        alignas(16) std::int8_t bytes[16] = {};
        for (std::size_t i = 0; i < count; ++i)
            bytes[i] = x[i];
        return load_bytes(bytes);
    }
    template <unsigned Bits>
    static Avx2Vector load_bits(const std::byte* x, std::size_t index) {
        __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
        bytes = _mm_srl_epi16(bytes, _mm_cvtsi32_si128(static_cast<int>(Bits * index)));
        bytes = _mm_and_si128(bytes, _mm_set1_epi8((1 << Bits) - 1));
        return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes)))};
    }
    static Avx2Vector load_quants(const std::byte* words, unsigned shift, std::uint32_t mask) {
        const auto* at = reinterpret_cast<const __m256i*>(words);
        const __m128i count = _mm_cvtsi32_si128(static_cast<int>(shift));
        const __m256i wanted = _mm256_set1_epi32(static_cast<int>(mask));
        const auto quants = [&](const __m256i* eight) {
            const __m256i shifted = _mm256_srl_epi32(_mm256_loadu_si256(eight), count);
            return _mm256_cvtepi32_ps(_mm256_and_si256(shifted, wanted));
        };
        return {quants(at), quants(at + 1)};
    }
    void store(float* out) const {
        _mm256_storeu_ps(out, low);
        _mm256_storeu_ps(out + 8, high);
    }
    void store_partial(float* out, std::size_t count) const {
        if (count <= 8) return _mm256_maskstore_ps(out, first(count), low);
        _mm256_storeu_ps(out, low);
        _mm256_maskstore_ps(out + 8, first(count - 8), high);
    }
    void store_half_partial(std::uint16_t* out, std::size_t count) const {
        constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        alignas(32) std::uint16_t halves[16];
        auto* vectors = reinterpret_cast<__m128i*>(halves);
        _mm_store_si128(vectors, _mm256_cvtps_ph(low, nearest));
        _mm_store_si128(vectors + 1, _mm256_cvtps_ph(high, nearest));
        for (std::size_t i = 0; i < count; ++i)
            out[i] = halves[i];
    }

    friend Avx2Vector operator+(Avx2Vector a, Avx2Vector b) {
        return {a.low + b.low, a.high + b.high};
    }
    friend Avx2Vector operator-(Avx2Vector a, Avx2Vector b) {
        return {a.low - b.low, a.high - b.high};
    }
    friend Avx2Vector operator*(Avx2Vector a, Avx2Vector b) {
        return {a.low * b.low, a.high * b.high};
    }
    friend Avx2Vector operator/(Avx2Vector a, Avx2Vector b) {
        return {a.low / b.low, a.high / b.high};
    }
    static Avx2Vector fma(Avx2Vector a, Avx2Vector b, Avx2Vector c) {
        return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
    }
    static Avx2Vector max(Avx2Vector a, Avx2Vector b) {
        return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
    }
    static Avx2Vector min(Avx2Vector a, Avx2Vector b) {
        return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
    }
    static Avx2Vector zero_where_less(Avx2Vector x, Avx2Vector limit, Avx2Vector y) {
        return {_mm256_and_ps(_mm256_cmp_ps(x.low, limit.low, _CMP_NLT_UQ), y.low),
                _mm256_and_ps(_mm256_cmp_ps(x.high, limit.high, _CMP_NLT_UQ), y.high)};
    }
    static Avx2Vector add_to_exponent(Avx2Vector x, Avx2Vector biased) {
        const auto add = [](__m256 a, __m256 b) {
            return as_float(_mm256_add_epi32(as_int(a), _mm256_slli_epi32(as_int(b), 23)));
        };
        return {add(x.low, biased.low), add(x.high, biased.high)};
    }
    static Avx2Vector rotate_pairs(Avx2Vector x, Avx2Vector angles) {
        const auto rotate = [](__m256 a, __m256 angle) {
            const __m256 cross = _mm256_permute_ps(a, 0xB1) * _mm256_movehdup_ps(angle);
            return _mm256_fmaddsub_ps(a, _mm256_moveldup_ps(angle), cross);
        };
        return {rotate(x.low, angles.low), rotate(x.high, angles.high)};
    }
    [[nodiscard]] std::uint32_t equal_mask(Avx2Vector other) const {
        const int a = _mm256_movemask_ps(_mm256_cmp_ps(low, other.low, _CMP_EQ_OQ));
        const int b = _mm256_movemask_ps(_mm256_cmp_ps(high, other.high, _CMP_EQ_OQ));
        return static_cast<std::uint32_t>(a | (b << 8));
    }

    // All ones where |x| > limit.
    static __m256 larger(__m256 x, __m256 limit) {
        const __m256 magnitude = as_float(_mm256_set1_epi32(0x7FFFFFFF));
        return _mm256_cmp_ps(_mm256_and_ps(x, magnitude), limit, _CMP_GT_OQ);
    }
    [[nodiscard]] std::uint32_t larger_mask(Avx2Vector other) const {
        return Avx2Vector{larger(low, other.low), larger(high, other.high)}.sign_mask();
    }
    [[nodiscard]] Avx2Vector zero_where_larger(Avx2Vector other) const {
        return {_mm256_andnot_ps(larger(low, other.low), low),
                _mm256_andnot_ps(larger(high, other.high), high)};
    }
    [[nodiscard]] std::uint32_t sign_mask() const {
        return static_cast<std::uint32_t>(_mm256_movemask_ps(low) | _mm256_movemask_ps(high) << 8);
    }

    [[nodiscard]] float sum() const {
        const __m256 eight = low + high;
        const __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
        const __m128 two = four + _mm_movehl_ps(four, four);
        return two[0] + two[1];
    }
    [[nodiscard]] float largest() const {
        const __m256 eight = _mm256_max_ps(low, high);
        const __m128 four =
            _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
    }
    static std::uint32_t largest_magnitude_bits(Avx2Vector a, Avx2Vector b) {
        const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
        const auto magnitude = [&](__m256 x) { return _mm256_and_si256(as_int(x), mask); };
        const __m256i eight =
            _mm256_max_epi32(_mm256_max_epi32(magnitude(a.low), magnitude(a.high)),
                             _mm256_max_epi32(magnitude(b.low), magnitude(b.high)));
        __m128i four =
            _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
        four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
        four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1));
        return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
    }
    static std::int32_t round_to_bytes(Avx2Vector a, Avx2Vector b, std::int8_t* out) {
        const __m256i q0 = _mm256_cvtps_epi32(a.low), q1 = _mm256_cvtps_epi32(a.high);
        const __m256i q2 = _mm256_cvtps_epi32(b.low), q3 = _mm256_cvtps_epi32(b.high);
        const __m256i packed =
            _mm256_packs_epi16(_mm256_packs_epi32(q0, q1), _mm256_packs_epi32(q2, q3));
        // The packs work within 128-bit halves; this puts the groups of four back in order.
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                            _mm256_permutevar8x32_epi32(packed, order));
        const __m256i eight = _mm256_add_epi32(_mm256_add_epi32(q0, q1), _mm256_add_epi32(q2, q3));
        __m128i four =
            _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4E));
        four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xB1));
        return _mm_cvtsi128_si32(four);
    }
};

}  // namespace
}  // namespace troupe::cpu
