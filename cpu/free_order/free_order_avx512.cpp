// The AVX-512 set in free order. Products of more than 8 rows have chains enough as they are.
#include "cpu/free_order/free_elements.hpp"
#include "cpu/kernels/avx512_tile.hpp"
#include "cpu/kernels/matmul_driver.hpp"

namespace troupe::cpu {
namespace {

// Continues acc[Rows][16] over a packed panel: `Chains` sums of products and as many of minima.
template <PanelFormat Format, std::size_t Rows, std::size_t Chains>
void accumulate_apart(const std::byte* panel, std::size_t blocks, const ActivationBlock* x,
                      float* acc) {
    __m512 products[Chains][Rows], minima[Chains][Rows];
    for (std::size_t c = 0; c < Chains; ++c) {
        for (std::size_t t = 0; t < Rows; ++t)
            products[c][t] = minima[c][t] = _mm512_setzero_ps();
    }
    const auto add_block = [&](std::size_t b, std::size_t c) {
        constexpr std::size_t bytes = panel_block_bytes(Format);
        prefetch_ahead(panel + b * bytes, bytes);
        const PanelBlock block = unpack<Format>(panel + b * bytes);
#pragma GCC unroll 8
        for (std::size_t t = 0; t < Rows; ++t) {
            const ActivationBlock& a = x[b * tile_rows + t];
            __m512i sum = _mm512_set1_epi32(Format == PanelFormat::q4_1   ? integer_bias_bits
                                            : Format == PanelFormat::q4_0 ? a.start_u4
                                                                          : a.start_u8);
#pragma GCC unroll 8
            for (std::size_t g = 0; g < 8; ++g) {
                std::int32_t four;
                std::memcpy(&four, a.q + 4 * g, 4);
                sum = _mm512_dpbusd_epi32(sum, block.group[g], _mm512_set1_epi32(four));
            }
            const __m512 product =
                _mm512_fmadd_ps(_mm512_castsi512_ps(sum), block.d, block.minus_bias_d);
            products[c][t] = _mm512_fmadd_ps(product, _mm512_set1_ps(a.d), products[c][t]);
            if constexpr (Format == PanelFormat::q4_1)
                minima[c][t] = _mm512_fmadd_ps(block.m, _mm512_set1_ps(a.s), minima[c][t]);
        }
    };
    std::size_t b = 0;
    for (; b + Chains <= blocks; b += Chains) {
#pragma GCC unroll 2
        for (std::size_t c = 0; c < Chains; ++c)
            add_block(b + c, c);
    }
    for (; b < blocks; ++b)
        add_block(b, 0);
    for (std::size_t t = 0; t < Rows; ++t) {
        __m512 sum = _mm512_loadu_ps(acc + 16 * t);
        for (std::size_t c = 0; c < Chains; ++c)
            sum = sum + (products[c][t] + minima[c][t]);
        _mm512_storeu_ps(acc + 16 * t, sum);
    }
}

template <PanelFormat Format>
struct FreeTile : VnniTile<Format> {
    static constexpr std::size_t rows_apart = 8;

    template <std::size_t... Index>
    static void accumulate_apart_rows(const std::byte* panel, std::size_t rows, std::size_t blocks,
                                      const ActivationBlock* x, float* acc,
                                      std::index_sequence<Index...>) {
        using Tile = void (*)(const std::byte*, std::size_t, const ActivationBlock*, float*);
        static constexpr Tile by_rows[] = {
            accumulate_apart<Format, Index + 1, (Index < 4 ? 2 : 1)>...};
        by_rows[rows - 1](panel, blocks, x, acc);
    }
    static void accumulate_packed(const std::byte* panel, std::size_t rows, std::size_t blocks,
                                  const ActivationBlock* x, float* acc) {
        if (rows > rows_apart)
            return VnniTile<Format>::accumulate_packed(panel, rows, blocks, x, acc);
        accumulate_apart_rows(panel, rows, blocks, x, acc, std::make_index_sequence<rows_apart>());
    }
};
template <>
struct FreeTile<PanelFormat::q4_k> : VnniTile<PanelFormat::q4_k> {};
template <>
struct FreeTile<PanelFormat::q5_k> : VnniTile<PanelFormat::q5_k> {};
template <>
struct FreeTile<PanelFormat::q6_k> : VnniTile<PanelFormat::q6_k> {};

}  // namespace

const FreeOrderTable& free_order_avx512() {
    static const FreeOrderTable table = free_order_table<Avx512Vector>(matmul_quantized<FreeTile>);
    return table;
}

}  // namespace troupe::cpu
