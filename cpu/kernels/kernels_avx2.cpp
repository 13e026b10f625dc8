// The AVX2 set, for processors without AVX-512 VNNI. 4-bit quants: eight products of a lane's
// column pair fit in 16 bits (8 * 2 * 15 * 127 = 30,480), so a block is summed there and widened
// once. 8-bit quants: |w| * (a with w's sign), at most 2 * 128 * 127 = 32,512, so nothing
// saturates.
#include <cstring>

#include "cpu/kernels/kernel_table.hpp"
#include "cpu/kernels/matmul_driver.hpp"
#include "cpu/kernels/sets.hpp"
#include "cpu/kernels/vector_avx2.hpp"

namespace troupe::cpu {
namespace {

// What a block's quants are, once unpacked: the 4-bit forms and q5_k unsigned, the others signed.
constexpr bool is_signed(PanelFormat format) {
    return quant_offset(format) == 128;
}
constexpr bool is_4_bit(PanelFormat format) {
    return quant_bytes(format) == 256;
}
// Unpacked, these two are the same.
constexpr PanelFormat unpacked_format(PanelFormat format) {
    return format == PanelFormat::q4_k ? PanelFormat::q4_1 : format;
}

// An unpacked block: groups of [16 rows][4 columns] bytes, and the float factors.
struct alignas(64) WideBlock {
    std::int8_t group[8][64];
    float d[2][16];             // of columns 0 .. 15, and 16 .. 31: used by q6_k
    float minus_bias_d[2][16];  // -(integer_bias * d), exact
    float m[16];                // forms with a minimum
};

__m256i load_bytes(const void* at) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

template <PanelFormat Format>
[[gnu::always_inline]] inline void unpack_block(const std::byte* block, WideBlock& out) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i sign = is_signed(Format) ? _mm256_set1_epi8(-128) : _mm256_setzero_si256();
    prefetch_ahead(block, panel_block_bytes(Format));
    std::int8_t* low = out.group[0];
    for (std::size_t i = 0; i < quant_bytes(Format); i += 32) {
        const __m256i quants = load_bytes(block + i);
        auto* first = reinterpret_cast<__m256i*>(low + i);
        auto* second = reinterpret_cast<__m256i*>(low + 256 + i);
        if constexpr (is_4_bit(Format)) {
            _mm256_store_si256(first, _mm256_and_si256(quants, nibble));
            _mm256_store_si256(second, _mm256_and_si256(_mm256_srli_epi16(quants, 4), nibble));
        } else {
            _mm256_store_si256(first, _mm256_xor_si256(quants, sign));
        }
    }
    for (std::size_t half = 0; half < (Format == PanelFormat::q6_k ? 2 : 1); ++half) {
        const Avx2Vector d = block_scale<Avx2Vector, Format>(block, half);
        d.store(out.d[half]);
        (d * Avx2Vector::set(-integer_bias)).store(out.minus_bias_d[half]);
    }
    if constexpr (has_minimum(Format)) block_minimum<Avx2Vector, Format>(block).store(out.m);
}

// The integer sums of groups [First, End) of one block: sums[half][t] holds weight rows 8 * half ..
// 8 * half + 7.
template <PanelFormat Format, std::size_t First, std::size_t End, std::size_t Rows>
[[gnu::always_inline]] inline void dot_block(const WideBlock& w, const ActivationBlock* x,
                                             __m256i (&sums)[2][Rows]) {
    const __m256i ones = _mm256_set1_epi16(1);
    for (std::size_t t = 0; t < Rows; ++t)
        sums[0][t] = sums[1][t] = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (std::size_t g = First; g < End; ++g) {
        const __m256i weights[2] = {load_bytes(w.group[g]), load_bytes(w.group[g] + 32)};
        const __m256i magnitude[2] = {_mm256_abs_epi8(weights[0]), _mm256_abs_epi8(weights[1])};
#pragma GCC unroll 8
        for (std::size_t t = 0; t < Rows; ++t) {
            std::int32_t four;
            std::memcpy(&four, x[t].q + 4 * g, 4);
            const __m256i a = _mm256_set1_epi32(four);
            for (std::size_t h = 0; h < 2; ++h) {
                if constexpr (is_4_bit(Format)) {
                    sums[h][t] = _mm256_add_epi16(sums[h][t], _mm256_maddubs_epi16(weights[h], a));
                } else {
                    const __m256i pairs =
                        is_signed(Format)
                            ? _mm256_maddubs_epi16(magnitude[h], _mm256_sign_epi8(a, weights[h]))
                            : _mm256_maddubs_epi16(weights[h], a);
                    sums[h][t] = _mm256_add_epi32(sums[h][t], _mm256_madd_epi16(pairs, ones));
                }
            }
        }
    }
    if constexpr (is_4_bit(Format)) {
        for (std::size_t t = 0; t < Rows; ++t) {
            sums[0][t] = _mm256_madd_epi16(sums[0][t], ones);
            sums[1][t] = _mm256_madd_epi16(sums[1][t], ones);
        }
    }
}

// Continues acc[Rows][16] by the sums of groups [First, End), whose factors are number `Factor`.
// Signed quants start at the bare bias.
template <PanelFormat Format, std::size_t First, std::size_t End, std::size_t Factor,
          std::size_t Rows>
[[gnu::always_inline]] inline void accumulate_groups(const WideBlock& w, const ActivationBlock* x,
                                                     float* acc) {
    __m256i sums[2][Rows];
    dot_block<Format, First, End>(w, x, sums);
    for (std::size_t h = 0; h < 2; ++h) {
        const __m256 d = _mm256_load_ps(w.d[Factor] + 8 * h);
        const __m256 minus_bias_d = _mm256_load_ps(w.minus_bias_d[Factor] + 8 * h);
        for (std::size_t t = 0; t < Rows; ++t) {
            const std::int32_t start =
                Format == PanelFormat::q4_0 ? x[t].start_u4 : integer_bias_bits;
            const __m256i sum = _mm256_add_epi32(sums[h][t], _mm256_set1_epi32(start));
            const __m256 product = _mm256_fmadd_ps(_mm256_castsi256_ps(sum), d, minus_bias_d);
            float* chain = acc + 16 * t + 8 * h;
            __m256 value = _mm256_fmadd_ps(product, _mm256_set1_ps(x[t].d), _mm256_loadu_ps(chain));
            if constexpr (has_minimum(Format)) {
                value = _mm256_fmadd_ps(_mm256_load_ps(w.m + 8 * h), _mm256_set1_ps(x[t].s), value);
            }
            _mm256_storeu_ps(chain, value);
        }
    }
}

// acc[Rows][16] continued by one block.
template <PanelFormat Format, std::size_t Rows>
[[gnu::always_inline]] inline void accumulate_block(const WideBlock& w, const ActivationBlock* x,
                                                    float* acc) {
    if constexpr (Format == PanelFormat::q6_k) {
        accumulate_groups<Format, 0, 4, 0, Rows>(w, x, acc);
        accumulate_groups<Format, 4, 8, 1, Rows>(w, x, acc);
    } else {
        accumulate_groups<Format, 0, 8, 0, Rows>(w, x, acc);
    }
}

// A block in any of its forms, for any number of rows.
template <PanelFormat Format>
void accumulate_rows(const WideBlock& w, std::size_t rows, const ActivationBlock* x, float* acc) {
    std::size_t t = 0;
    for (; t + 8 <= rows; t += 8)
        accumulate_block<Format, 8>(w, x + t, acc + 16 * t);
    for (; t + 4 <= rows; t += 4)
        accumulate_block<Format, 4>(w, x + t, acc + 16 * t);
    for (; t < rows; ++t)
        accumulate_block<Format, 1>(w, x + t, acc + 16 * t);
}

template <PanelFormat Format>
struct Avx2Tile {
    using V = Avx2Vector;
    using Block = WideBlock;
    static constexpr std::size_t rows_to_unpack = 4;
    static constexpr bool unpacks_meanwhile = true;

    static void accumulate(const Block& w, std::size_t rows, const ActivationBlock* x, float* acc) {
        accumulate_rows<unpacked_format(Format)>(w, rows, x, acc);
    }
    static void accumulate_packed(const std::byte* panel, std::size_t rows, std::size_t blocks,
                                  const ActivationBlock* x, float* acc) {
        for (std::size_t b = 0; b < blocks; ++b, x += tile_rows) {
            Block w;
            unpack_block<Format>(panel + b * panel_block_bytes(Format), w);
            accumulate(w, rows, x, acc);
        }
    }
    static void unpack_blocks(const std::byte* panel, std::size_t first, std::size_t count,
                              Block* out) {
        const std::byte* at = panel + first * panel_block_bytes(Format);
        for (std::size_t b = 0; b < count; ++b, at += panel_block_bytes(Format)) {
            unpack_block<Format>(at, out[b]);
        }
    }
    template <class Next>
    static void accumulate_unpacked(const Block* unpacked, std::size_t rows, std::size_t blocks,
                                    const ActivationBlock* x, float* acc, const Next& next) {
        for (std::size_t b = 0; b < blocks; ++b, x += tile_rows) {
            accumulate(unpacked[b], rows, x, acc);
            next(b);
        }
    }
};

// Products of a block of 32 columns fit into sums of 16 bits: eight of those to one that widens.
std::uint64_t multiply_add_limit(std::uint64_t rounds) {
    constexpr int chains = 8, products = 8;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i weights = _mm256_set1_epi8(7), x = _mm256_set1_epi8(-3);
    __m256i sums[chains] = {};
    for (std::uint64_t i = 0; i < rounds; ++i) {
        for (__m256i& sum : sums) {
            __m256i narrow = _mm256_setzero_si256();
            for (int k = 0; k < products; ++k) {
                __asm__("" : "+x"(weights), "+x"(x));  // each product is another one
                narrow = _mm256_add_epi16(narrow, _mm256_maddubs_epi16(weights, x));
            }
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(narrow, ones));
        }
    }
    for (__m256i& sum : sums)
        __asm__ volatile("" : "+x"(sum));
    return rounds * chains * products * 32;
}

}  // namespace

const Kernels& avx2_kernels() {
    static constexpr Kernels kernels =
        kernel_table<Avx2Vector>("avx2", matmul_quantized<Avx2Tile>, multiply_add_limit);
    return kernels;
}

}  // namespace troupe::cpu
