// The AVX2 set, for processors without VNNI. 4-bit quants: eight products of a lane's column pair
// fit in 16 bits (8 * 2 * 15 * 127 = 30,480), so a block is summed there and widened once. 8-bit
// quants: |w| * (a with w's sign), at most 2 * 128 * 127 = 32,512, so nothing saturates.
#include "cpu/kernels/avx2_tile.hpp"
#include "cpu/kernels/kernel_table.hpp"
#include "cpu/kernels/matmul_driver.hpp"
#include "cpu/kernels/sets.hpp"

namespace troupe::cpu {
namespace {

template <PanelFormat Format>
struct WideningDot {
    static constexpr bool signed_quants = true;
    static constexpr std::size_t rows_at_once = 8;

    template <std::size_t First, std::size_t End, std::size_t Rows>
    [[gnu::always_inline]] static void sums(const WideBlock& w, const ActivationBlock* x,
                                            BlockSums<Rows>& out) {
        const __m256i ones = _mm256_set1_epi16(1);
        for (std::size_t t = 0; t < Rows; ++t)
            out[0][t] = out[1][t] = _mm256_setzero_si256();
#pragma GCC unroll 8
        for (std::size_t g = First; g < End; ++g) {
            const __m256i weights[2] = {load_bytes(w.group[g]), load_bytes(w.group[g] + 32)};
            const __m256i magnitude[2] = {_mm256_abs_epi8(weights[0]), _mm256_abs_epi8(weights[1])};
#pragma GCC unroll 8
            for (std::size_t t = 0; t < Rows; ++t) {
                const __m256i a = four_columns(x[t], g);
                for (std::size_t h = 0; h < 2; ++h) {
                    if constexpr (is_4_bit(Format)) {
                        out[h][t] =
                            _mm256_add_epi16(out[h][t], _mm256_maddubs_epi16(weights[h], a));
                    } else {
                        const __m256i pairs =
                            quant_offset(Format) == 128
                                ? _mm256_maddubs_epi16(magnitude[h],
                                                       _mm256_sign_epi8(a, weights[h]))
                                : _mm256_maddubs_epi16(weights[h], a);
                        out[h][t] = _mm256_add_epi32(out[h][t], _mm256_madd_epi16(pairs, ones));
                    }
                }
            }
        }
        for (std::size_t t = 0; t < Rows; ++t) {
            const __m256i start =
                _mm256_set1_epi32(Format == PanelFormat::q4_0 ? x[t].start_u4 : integer_bias_bits);
            for (std::size_t h = 0; h < 2; ++h) {
                if constexpr (is_4_bit(Format)) out[h][t] = _mm256_madd_epi16(out[h][t], ones);
                out[h][t] = _mm256_add_epi32(out[h][t], start);
            }
        }
    }
};

template <PanelFormat Format>
struct WideningTile : Avx2Tile<WideningDot, Format> {};

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
        kernel_table<Avx2Vector>("avx2", matmul_quantized<WideningTile>, multiply_add_limit);
    return kernels;
}

}  // namespace troupe::cpu
