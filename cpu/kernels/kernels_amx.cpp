// The AMX set: the AVX-512 set with whole tiles of 16 rows on the tile unit. A block's 16 x 16
// integer sums come out of one tile product; the float chains are the same as everywhere.
#include <type_traits>

#include "cpu/kernels/avx512_tile.hpp"
#include "cpu/kernels/matmul_driver.hpp"
#include "cpu/kernels/sets.hpp"
#include "cpu/kernels/vector_avx512.hpp"

namespace troupe::cpu {
namespace {

// Tile registers 0, 1: sums [16 rows][16 lanes] of int32; 4, 5: activations [16 rows][32 bytes];
// 6, 7: weights, 8 groups of [16 lanes][4 bytes].
struct alignas(64) TileConfig {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 0, 0, 32, 32, 64, 64};
    std::uint8_t rows[16] = {16, 16, 0, 0, 16, 16, 8, 8};
};

template <PanelFormat Format>
struct AmxTile : VnniTile<Format> {
    using Block = PanelBlock;
    static constexpr std::size_t rows_to_unpack = tile_rows;
    static constexpr bool unpacks_meanwhile = true;

    template <class Next>
    static void accumulate_unpacked(const Block* unpacked, std::size_t rows, std::size_t blocks,
                                    const ActivationBlock* x, float* acc, const Next& next) {
        if (rows == tile_rows) return accumulate_tile_unit(unpacked, blocks, x, acc, next);
        for (std::size_t b = 0; b < blocks; ++b)
            next(b);
        VnniTile<Format>::accumulate_unpacked(unpacked, rows, blocks, x, acc);
    }

 private:
    using Sums = std::int32_t[tile_rows][panel_rows];

    // Even blocks use one set of tile registers, odd blocks the other. GCC's tile intrinsics are
    // macros over literal register numbers, hence the two copies.
    template <bool Odd>
    [[gnu::always_inline]] static void multiply(const Block& w, const ActivationBlock* x) {
        if constexpr (Odd) {
            _tile_loadd(5, x->q, sizeof(ActivationBlock));
            _tile_loadd(7, w.group, 64);
            _tile_zero(1);
            _tile_dpbsud(1, 5, 7);
        } else {
            _tile_loadd(4, x->q, sizeof(ActivationBlock));
            _tile_loadd(6, w.group, 64);
            _tile_zero(0);
            _tile_dpbsud(0, 4, 6);
        }
    }
    template <bool Odd>
    [[gnu::always_inline]] static void store_sums(Sums& out) {
        if constexpr (Odd)
            _tile_stored(1, out, 64);
        else
            _tile_stored(0, out, 64);
    }

    // A pipeline over blocks, so that the tile unit, its stores and the float chains overlap: block
    // b is multiplied two steps before its sums are stored, and those are used two steps later.
    template <class Next>
    static void accumulate_tile_unit(const Block* w, std::size_t blocks, const ActivationBlock* x,
                                     float* acc, const Next& next) {
        alignas(64) Sums sums[4];
        __m512 chains[tile_rows];
        for (std::size_t t = 0; t < tile_rows; ++t)
            chains[t] = _mm512_loadu_ps(acc + 16 * t);
        const auto step = [&]<bool Odd>(std::size_t b, std::bool_constant<Odd>) {
            store_sums<Odd>(sums[b % 4]);
            if (b + 2 < blocks) multiply<Odd>(w[b + 2], x + (b + 2) * tile_rows);
        };
        // GCC 12 does not know that tile loads read memory: what was unpacked must be there by now.
        __asm__ volatile("" ::: "memory");
        multiply<false>(w[0], x);
        if (blocks > 1) multiply<true>(w[1], x + tile_rows);
        for (std::size_t b = 0; b < blocks + 2; ++b) {
            if (b < blocks && b % 2 == 0) step(b, std::false_type());
            if (b < blocks && b % 2 == 1) step(b, std::true_type());
            if (b < blocks) next(b);
            if (b < 2) continue;
            extend_chains(w[b - 2], x + (b - 2) * tile_rows, sums[(b - 2) % 4], chains);
        }
        for (std::size_t t = 0; t < tile_rows; ++t)
            _mm512_storeu_ps(acc + 16 * t, chains[t]);
    }

    [[gnu::always_inline]] static void extend_chains(const Block& w, const ActivationBlock* x,
                                                     const Sums& sums,
                                                     __m512 (&chains)[tile_rows]) {
        const __m512 d = w.d, minus_bias_d = w.minus_bias_d, m = w.m;
#pragma GCC unroll 16
        for (std::size_t t = 0; t < tile_rows; ++t) {
            const ActivationBlock& a = x[t];
            const std::int32_t start = has_minimum(Format)           ? integer_bias_bits
                                       : Format == PanelFormat::q4_0 ? a.start_u4
                                                                     : a.start_u8;
            const __m512i sum =
                _mm512_add_epi32(_mm512_load_si512(sums[t]), _mm512_set1_epi32(start));
            const __m512 product = _mm512_fmadd_ps(_mm512_castsi512_ps(sum), d, minus_bias_d);
            chains[t] = _mm512_fmadd_ps(product, _mm512_set1_ps(a.d), chains[t]);
            if constexpr (has_minimum(Format)) {
                chains[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(a.s), chains[t]);
            }
        }
    }
};

// Its two sums a block do not fit the pipeline above.
template <>
struct AmxTile<PanelFormat::q6_k> : VnniTile<PanelFormat::q6_k> {};

void matmul_with_tiles(const PackedMatrix& w, const QuantizedRows& x, const MatmulPart& part) {
    if (part.row_end - part.row_begin < tile_rows) {
        return avx512_kernels().matmul_quantized(w, x, part);
    }
    static constexpr TileConfig config;
    _tile_loadconfig(&config);
    matmul_quantized<AmxTile>(w, x, part);
    _tile_release();  // the thread's state is small again for context switches
}

// Whole tiles of 64 columns; products of blocks of 32 fill half of one.
std::uint64_t multiply_add_limit(std::uint64_t rounds) {
    // GCC tells the optimiser of the first bytes only: it has to lie in memory as a whole.
    static constexpr TileConfig config{.row_bytes = {64, 64, 64, 64, 64, 64},
                                       .rows = {16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (std::uint64_t i = 0; i < rounds; ++i) {
        _tile_dpbsud(0, 4, 5);
        _tile_dpbsud(1, 4, 5);
        _tile_dpbsud(2, 4, 5);
        _tile_dpbsud(3, 4, 5);
    }
    _tile_release();
    return rounds * 4 * 16 * 16 * 64;
}

}  // namespace

const Kernels& amx_kernels() {
    static const Kernels kernels = [] {
        Kernels set = avx512_kernels();
        set.name = "amx";
        set.matmul_quantized = matmul_with_tiles;
        set.multiply_add_limit = multiply_add_limit;
        return set;
    }();
    return kernels;
}

}  // namespace troupe::cpu
