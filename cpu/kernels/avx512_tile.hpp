// The AVX-512 VNNI register tile: one panel (a lane per weight row) by up to 16 rows of
// activations. Shared by the avx512 and amx sets; everything here has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/kernels/immintrin_quiet.hpp"
#include "cpu/kernels/kernel_types.hpp"
#include "cpu/kernels/vector_avx512.hpp"

namespace troupe::cpu {
namespace {

// One block of a panel in registers or ready to load: unsigned quants and the float factors.
struct PanelBlock {
    __m512i group[8];  // group g: [16 rows][columns 4g .. 4g + 3]
    __m512 d;
    __m512 minus_bias_d;  // -(integer_bias * d), exact
    __m512 m;             // q4_1 only
};

template <PanelFormat Format>
[[gnu::always_inline]] inline PanelBlock unpack(const std::byte* block) {
    PanelBlock out;
    constexpr std::size_t quant_bytes = Format == PanelFormat::q8_0 ? 512 : 256;
    const __m512i nibble = _mm512_set1_epi8(15);
    for (std::size_t g = 0; g < quant_bytes / 64; ++g) {
        const __m512i quants = _mm512_loadu_si512(block + 64 * g);
        if constexpr (Format == PanelFormat::q8_0) {
            out.group[g] = quants;
        } else {
            out.group[g] = _mm512_and_si512(quants, nibble);
            out.group[g + 4] = _mm512_and_si512(_mm512_srli_epi16(quants, 4), nibble);
        }
    }
    const auto* scales = reinterpret_cast<const __m256i*>(block + quant_bytes);
    out.d = _mm512_cvtph_ps(_mm256_loadu_si256(scales));
    out.minus_bias_d = out.d * _mm512_set1_ps(-integer_bias);
    if constexpr (Format == PanelFormat::q4_1) {
        out.m = _mm512_cvtph_ps(_mm256_loadu_si256(scales + 1));
    } else {
        out.m = _mm512_setzero_ps();
    }
    return out;
}

// Where a tile takes its blocks from: the panel itself, or blocks unpacked once for many tiles.
template <PanelFormat Format>
struct PackedSource {
    const std::byte* panel;
    [[gnu::always_inline]] PanelBlock block(std::size_t b) const {
        constexpr std::size_t bytes = panel_block_bytes(Format);
        _mm_prefetch(panel + b * bytes + 4096, _MM_HINT_T0);
        return unpack<Format>(panel + b * bytes);
    }
};
struct UnpackedSource {
    const PanelBlock* blocks;
    [[gnu::always_inline]] const PanelBlock& block(std::size_t b) const { return blocks[b]; }
};

// Continues the chains acc[Rows][16] over `blocks` blocks; x is the first row's first block.
template <PanelFormat Format, std::size_t Rows, class Source>
void accumulate_tile(Source source, std::size_t blocks, const ActivationBlock* x, float* acc) {
    __m512 sums[Rows];
    for (std::size_t t = 0; t < Rows; ++t)
        sums[t] = _mm512_loadu_ps(acc + 16 * t);
    for (std::size_t b = 0; b < blocks; ++b, x += tile_rows) {
        const PanelBlock& block = source.block(b);
        __m512i group[8];  // copied by hand: GCC moves the whole struct through the stack
        for (std::size_t g = 0; g < 8; ++g)
            group[g] = block.group[g];
        const __m512 d = block.d, minus_bias_d = block.minus_bias_d, m = block.m;
#pragma GCC unroll 16
        for (std::size_t t = 0; t < Rows; ++t) {
            const ActivationBlock& a = x[t];
            __m512i sum = _mm512_set1_epi32(Format == PanelFormat::q4_1   ? integer_bias_bits
                                            : Format == PanelFormat::q4_0 ? a.start_u4
                                                                          : a.start_u8);
#pragma GCC unroll 8
            for (std::size_t g = 0; g < 8; ++g) {
                std::int32_t four;
                std::memcpy(&four, a.q + 4 * g, 4);
                sum = _mm512_dpbusd_epi32(sum, group[g], _mm512_set1_epi32(four));
            }
            const __m512 product = _mm512_fmadd_ps(_mm512_castsi512_ps(sum), d, minus_bias_d);
            sums[t] = _mm512_fmadd_ps(product, _mm512_set1_ps(a.d), sums[t]);
            if constexpr (Format == PanelFormat::q4_1) {
                sums[t] = _mm512_fmadd_ps(m, _mm512_set1_ps(a.s), sums[t]);
            }
        }
    }
    for (std::size_t t = 0; t < Rows; ++t)
        _mm512_storeu_ps(acc + 16 * t, sums[t]);
}

template <PanelFormat Format, class Source, std::size_t... Index>
void accumulate_rows(Source source, std::size_t rows, std::size_t blocks, const ActivationBlock* x,
                     float* acc, std::index_sequence<Index...>) {
    using Tile = void (*)(Source, std::size_t, const ActivationBlock*, float*);
    static constexpr Tile by_rows[] = {accumulate_tile<Format, Index + 1, Source>...};
    by_rows[rows - 1](source, blocks, x, acc);
}

// As accumulate_tile, for a number of rows known at run time, 1 to 16.
template <PanelFormat Format, class Source>
void accumulate_rows(Source source, std::size_t rows, std::size_t blocks, const ActivationBlock* x,
                     float* acc) {
    accumulate_rows<Format>(source, rows, blocks, x, acc, std::make_index_sequence<tile_rows>());
}

// For MatmulDriver.
template <PanelFormat Format>
struct VnniTile {
    using V = Avx512Vector;
    using Block = PanelBlock;
    static constexpr std::size_t rows_to_unpack = 2 * tile_rows;

    static void accumulate_packed(const std::byte* panel, std::size_t rows, std::size_t blocks,
                                  const ActivationBlock* x, float* acc) {
        accumulate_rows<Format>(PackedSource<Format>{panel}, rows, blocks, x, acc);
    }
    static void unpack_blocks(const std::byte* panel, std::size_t first, std::size_t count,
                              Block* out) {
        const std::byte* at = panel + first * panel_block_bytes(Format);
        for (std::size_t b = 0; b < count; ++b, at += panel_block_bytes(Format)) {
            out[b] = unpack<Format>(at);
        }
    }
    static void accumulate_unpacked(const Block* unpacked, std::size_t rows, std::size_t blocks,
                                    const ActivationBlock* x, float* acc) {
        accumulate_rows<Format>(UnpackedSource{unpacked}, rows, blocks, x, acc);
    }
};

}  // namespace
}  // namespace troupe::cpu
