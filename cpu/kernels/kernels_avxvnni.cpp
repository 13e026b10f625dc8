// The AVX-VNNI set, for processors with VNNI in 256 bits alone: quants stay unsigned, and what
// undoes their offset is where a sum begins. Everything else is the AVX2 set's.
#include "cpu/kernels/avx2_tile.hpp"
#include "cpu/kernels/kernel_table.hpp"
#include "cpu/kernels/matmul_driver.hpp"
#include "cpu/kernels/sets.hpp"

namespace troupe::cpu {
namespace {

template <PanelFormat Format>
struct VnniDot {
    static constexpr bool signed_quants = false;
    static constexpr std::size_t rows_at_once = 6;  // 12 sums, two vectors of weights, one of rows

    template <std::size_t First, std::size_t End, std::size_t Rows>
    [[gnu::always_inline]] static void sums(const WideBlock& w, const ActivationBlock* x,
                                            BlockSums<Rows>& out) {
        for (std::size_t t = 0; t < Rows; ++t)
            out[0][t] = out[1][t] = start<First>(x[t]);
#pragma GCC unroll 8
        for (std::size_t g = First; g < End; ++g) {
            const __m256i weights[2] = {load_bytes(w.group[g]), load_bytes(w.group[g] + 32)};
#pragma GCC unroll 8
            for (std::size_t t = 0; t < Rows; ++t) {
                const __m256i a = four_columns(x[t], g);
                for (std::size_t h = 0; h < 2; ++h)
                    out[h][t] = _mm256_dpbusd_avx_epi32(out[h][t], weights[h], a);
            }
        }
    }

 private:
    template <std::size_t First>
    [[gnu::always_inline]] static __m256i start(const ActivationBlock& x) {
        if constexpr (has_minimum(Format)) return _mm256_set1_epi32(integer_bias_bits);
        if constexpr (Format == PanelFormat::q4_0) return _mm256_set1_epi32(x.start_u4);
        if constexpr (Format == PanelFormat::q8_0) return _mm256_set1_epi32(x.start_u8);
        // q6_k has two sums a block; the activations know what undoes the offset of both together.
        const __m256i offset = _mm256_set1_epi8(-128);  // 128 to an instruction that reads unsigned
        __m256i first = _mm256_setzero_si256();
        for (std::size_t g = 0; g < 4; ++g)
            first = _mm256_dpbusd_avx_epi32(first, offset, four_columns(x, g));
        return First == 0 ? _mm256_sub_epi32(_mm256_set1_epi32(integer_bias_bits), first)
                          : _mm256_add_epi32(_mm256_set1_epi32(x.start_u8), first);
    }
};

template <PanelFormat Format>
struct VnniTile : Avx2Tile<VnniDot, Format> {};

std::uint64_t multiply_add_limit(std::uint64_t rounds) {
    constexpr int chains = 12;  // more than the instruction's latency times its rate
    const __m256i weights = _mm256_set1_epi8(7), x = _mm256_set1_epi8(-3);
    __m256i sums[chains] = {};
    for (std::uint64_t i = 0; i < rounds; ++i)
        for (__m256i& sum : sums)
            sum = _mm256_dpbusd_avx_epi32(sum, weights, x);
    for (__m256i& sum : sums)
        __asm__ volatile("" : "+x"(sum));
    return rounds * chains * 32;
}

}  // namespace

const Kernels& avx_vnni_kernels() {
    static constexpr Kernels kernels =
        kernel_table<Avx2Vector>("avx_vnni", matmul_quantized<VnniTile>, multiply_add_limit);
    return kernels;
}

}  // namespace troupe::cpu
