// The register tile of sets with 256-bit vectors: one panel (two vectors, a lane per weight row) by
// some rows of activations. How a block's integer sums come about is the set's (Dot); everything
// here has internal linkage. Dot<Format> has
//   signed_quants: unpack the quants of 8 bits as signed numbers
//   sums<First, End, Rows>(block, x, out): integer_bias_bits + the exact sums of (weight - offset)
//     * q over the groups [First, End) of a block, by Rows rows
//   rows_at_once: the most rows that go together
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "cpu/kernels/kernel_types.hpp"
#include "cpu/kernels/outliers.hpp"
#include "cpu/kernels/vector_avx2.hpp"

namespace troupe::cpu {
namespace {

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

// Weight rows 8 * half .. 8 * half + 7 by each row of activations.
template <std::size_t Rows>
using BlockSums = __m256i[2][Rows];

inline __m256i load_bytes(const void* at) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

// The activations of a group's four columns, in every lane.
[[gnu::always_inline]] inline __m256i four_columns(const ActivationBlock& x, std::size_t group) {
    std::int32_t four;
    std::memcpy(&four, x.q + 4 * group, 4);
    return _mm256_set1_epi32(four);
}

template <PanelFormat Format, bool Signed>
[[gnu::always_inline]] inline void unpack_block(const std::byte* block, WideBlock& out) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i sign = _mm256_set1_epi8(-128);
    prefetch_ahead(block, panel_block_bytes(Format));
    std::int8_t* low = out.group[0];
    for (std::size_t i = 0; i < quant_bytes(Format); i += 32) {
        const __m256i quants = load_bytes(block + i);
        auto* first = reinterpret_cast<__m256i*>(low + i);
        auto* second = reinterpret_cast<__m256i*>(low + 256 + i);
        if constexpr (is_4_bit(Format)) {
            _mm256_store_si256(first, _mm256_and_si256(quants, nibble));
            _mm256_store_si256(second, _mm256_and_si256(_mm256_srli_epi16(quants, 4), nibble));
        } else if constexpr (Signed && quant_offset(Format) == 128) {
            _mm256_store_si256(first, _mm256_xor_si256(quants, sign));
        } else {
            _mm256_store_si256(first, quants);
        }
    }
    for (std::size_t half = 0; half < (Format == PanelFormat::q6_k ? 2 : 1); ++half) {
        const Avx2Vector d = block_scale<Avx2Vector, Format>(block, half);
        d.store(out.d[half]);
        (d * Avx2Vector::set(-integer_bias)).store(out.minus_bias_d[half]);
    }
    if constexpr (has_minimum(Format)) block_minimum<Avx2Vector, Format>(block).store(out.m);
}

// The chains of some rows by a panel's 16 weight rows, acc[Rows][16]. In registers for a few rows
// from block to block; for more the integer sums need those.
template <std::size_t Rows>
struct RegisterChains {
    __m256 of[2][Rows];

    [[gnu::always_inline]] explicit RegisterChains(const float* acc) {
        for (std::size_t t = 0; t < Rows; ++t) {
            of[0][t] = _mm256_loadu_ps(acc + 16 * t);
            of[1][t] = _mm256_loadu_ps(acc + 16 * t + 8);
        }
    }
    [[gnu::always_inline]] __m256 load(std::size_t h, std::size_t t) const { return of[h][t]; }
    [[gnu::always_inline]] void store(std::size_t h, std::size_t t, __m256 chain) {
        of[h][t] = chain;
    }
    [[gnu::always_inline]] void write(float* acc) const {
        for (std::size_t t = 0; t < Rows; ++t) {
            _mm256_storeu_ps(acc + 16 * t, of[0][t]);
            _mm256_storeu_ps(acc + 16 * t + 8, of[1][t]);
        }
    }
};
struct MemoryChains {
    float* acc;

    [[gnu::always_inline]] __m256 load(std::size_t h, std::size_t t) const {
        return _mm256_loadu_ps(acc + 16 * t + 8 * h);
    }
    [[gnu::always_inline]] void store(std::size_t h, std::size_t t, __m256 chain) const {
        _mm256_storeu_ps(acc + 16 * t + 8 * h, chain);
    }
};

// Continues the chains by the sums of groups [First, End), whose factors are number `Factor`.
template <class BlockDot, PanelFormat Format, std::size_t First, std::size_t End,
          std::size_t Factor, std::size_t Rows, class Chains>
[[gnu::always_inline]] inline void extend_by_groups(const WideBlock& w, const ActivationBlock* x,
                                                    Chains& chains) {
    BlockSums<Rows> sums;
    BlockDot::template sums<First, End, Rows>(w, x, sums);
    for (std::size_t h = 0; h < 2; ++h) {
        const __m256 d = _mm256_load_ps(w.d[Factor] + 8 * h);
        const __m256 minus_bias_d = _mm256_load_ps(w.minus_bias_d[Factor] + 8 * h);
        for (std::size_t t = 0; t < Rows; ++t) {
            const __m256 sum = _mm256_castsi256_ps(sums[h][t]);
            const __m256 product = _mm256_fmadd_ps(sum, d, minus_bias_d);
            __m256 chain = _mm256_fmadd_ps(product, _mm256_set1_ps(x[t].d), chains.load(h, t));
            if constexpr (has_minimum(Format)) {
                const __m256 m = _mm256_load_ps(w.m + 8 * h);
                chain = _mm256_fmadd_ps(m, _mm256_set1_ps(x[t].s), chain);
            }
            chains.store(h, t, chain);
        }
    }
}

template <class BlockDot, PanelFormat Format, std::size_t Rows, class Chains>
[[gnu::always_inline]] inline void extend_by_block(const WideBlock& w, const ActivationBlock* x,
                                                   Chains& chains) {
    if constexpr (Format == PanelFormat::q6_k) {
        extend_by_groups<BlockDot, Format, 0, 4, 0, Rows>(w, x, chains);
        extend_by_groups<BlockDot, Format, 4, 8, 1, Rows>(w, x, chains);
    } else {
        extend_by_groups<BlockDot, Format, 0, 8, 0, Rows>(w, x, chains);
    }
}

// Calls function(std::integral_constant<count>), 1 <= count <= Most.
template <std::size_t Most, class Function>
[[gnu::always_inline]] inline void with_count(std::size_t count, Function function) {
    [&]<std::size_t... Index>(std::index_sequence<Index...>) {
        (void)((count == Index + 1 &&
                (function(std::integral_constant<std::size_t, Index + 1>()), true)) ||
               ...);
    }
    (std::make_index_sequence<Most>());
}

// A block in any of its forms by any number of rows, in about equal parts.
template <class BlockDot, PanelFormat Format>
void accumulate_rows(const WideBlock& w, std::size_t rows, const ActivationBlock* x, float* acc) {
    constexpr std::size_t most = BlockDot::rows_at_once;
    for (std::size_t t = 0; t < rows;) {
        const std::size_t left = rows - t, parts = (left + most - 1) / most;
        const std::size_t count = (left + parts - 1) / parts;
        with_count<most>(count, [&](auto rows_now) {
            MemoryChains chains{acc + 16 * t};
            extend_by_block<BlockDot, Format, rows_now.value>(w, x + t, chains);
        });
        t += count;
    }
}

// For MatmulDriver. Dot is the set's, of the unpacked form.
template <template <PanelFormat> class Dot, PanelFormat Format>
struct Avx2Tile {
    using V = Avx2Vector;
    using Block = WideBlock;
    using BlockDot = Dot<unpacked_format(Format)>;
    static constexpr std::size_t rows_to_unpack = 4;
    static constexpr bool unpacks_meanwhile = true;

    static void accumulate_packed(const std::byte* panel, std::size_t rows, std::size_t blocks,
                                  const ActivationBlock* x, float* acc) {
        with_count<rows_to_unpack - 1>(rows, [&](auto rows_now) {
            RegisterChains<rows_now.value> chains(acc);
            for (std::size_t b = 0; b < blocks; ++b) {
                Block w;
                unpack_blocks(panel, b, 1, &w);
                extend_by_block<BlockDot, unpacked_format(Format), rows_now.value>(
                    w, x + b * tile_rows, chains);
            }
            chains.write(acc);
        });
    }
    static void unpack_blocks(const std::byte* panel, std::size_t first, std::size_t count,
                              Block* out) {
        const std::byte* at = panel + first * panel_block_bytes(Format);
        for (std::size_t b = 0; b < count; ++b, at += panel_block_bytes(Format)) {
            unpack_block<Format, BlockDot::signed_quants>(at, out[b]);
        }
    }
    template <class Next>
    static void accumulate_unpacked(const Block* unpacked, std::size_t rows, std::size_t blocks,
                                    const ActivationBlock* x, float* acc, const Next& next) {
        for (std::size_t b = 0; b < blocks; ++b, x += tile_rows) {
            accumulate_rows<BlockDot, unpacked_format(Format)>(unpacked[b], rows, x, acc);
            next(b);
        }
    }
};

}  // namespace
}  // namespace troupe::cpu
