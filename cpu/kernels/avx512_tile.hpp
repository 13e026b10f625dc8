// The AVX-512 VNNI register tile: one panel (a lane per weight row) by up to 16 rows of
// activations. Shared by the avx512 and amx sets; everything here has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/kernels/immintrin_quiet.hpp"
#include "cpu/kernels/kernel_types.hpp"
#include "cpu/kernels/outliers.hpp"
#include "cpu/kernels/vector_avx512.hpp"

namespace troupe::cpu {
namespace {

// One block of a panel in registers or ready to load: unsigned quants and the float factors.
struct PanelBlock {
    __m512i group[8];  // group g: [16 rows][columns 4g .. 4g + 3]
    __m512 d;
    __m512 minus_bias_d;  // -(integer_bias * d), exact
    __m512 m;             // forms with a minimum
};

template <PanelFormat Format>
[[gnu::always_inline]] inline void unpack_quants(const std::byte* block, __m512i (&group)[8]) {
    const __m512i nibble = _mm512_set1_epi8(15);
    for (std::size_t g = 0; g < quant_bytes(Format) / 64; ++g) {
        const __m512i quants = _mm512_loadu_si512(block + 64 * g);
        if constexpr (quant_bytes(Format) == 512) {
            group[g] = quants;
        } else {
            group[g] = _mm512_and_si512(quants, nibble);
            group[g + 4] = _mm512_and_si512(_mm512_srli_epi16(quants, 4), nibble);
        }
    }
}

template <PanelFormat Format>
[[gnu::always_inline]] inline PanelBlock unpack(const std::byte* block) {
    PanelBlock out;
    unpack_quants<Format>(block, out.group);
    out.d = block_scale<Avx512Vector, Format>(block, 0).v;
    out.minus_bias_d = out.d * _mm512_set1_ps(-integer_bias);
    if constexpr (has_minimum(Format)) {
        out.m = block_minimum<Avx512Vector, Format>(block).v;
    } else {
        out.m = _mm512_setzero_ps();
    }
    return out;
}

// What an unpacked block is computed as: with a minimum, quants of 4 bits or 8 make no difference.
constexpr PanelFormat unpacked_format(PanelFormat format) {
    return has_minimum(format) ? PanelFormat::q4_1 : format;
}

// Where a tile takes its blocks from: the panel itself, or blocks unpacked once for many tiles.
template <PanelFormat Format>
struct PackedSource {
    const std::byte* panel;
    [[gnu::always_inline]] PanelBlock block(std::size_t b) const {
        constexpr std::size_t bytes = panel_block_bytes(Format);
        prefetch_ahead(panel + b * bytes, bytes);
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

// For MatmulDriver: forms whose blocks are used straight from the panel.
template <PanelFormat Format>
struct VnniTile {
    using V = Avx512Vector;
    using Block = PanelBlock;
    static constexpr std::size_t rows_to_unpack = 2 * tile_rows;
    static constexpr bool unpacks_meanwhile = false;

    static void accumulate_packed(const std::byte* panel, std::size_t rows, std::size_t blocks,
                                  const ActivationBlock* x, float* acc) {
        accumulate_rows<Format>(PackedSource<Format>{panel}, rows, blocks, x, acc);
    }
    static void unpack_blocks(const std::byte* panel, std::size_t first, std::size_t count,
                              Block* out) {
        const std::byte* at = panel + first * panel_block_bytes(Format);
        for (std::size_t b = 0; b < count; ++b, at += panel_block_bytes(Format)) {
            prefetch_ahead(at, panel_block_bytes(Format));
            out[b] = unpack<Format>(at);
        }
    }
    static void accumulate_unpacked(const Block* unpacked, std::size_t rows, std::size_t blocks,
                                    const ActivationBlock* x, float* acc) {
        accumulate_rows<Format>(UnpackedSource{unpacked}, rows, blocks, x, acc);
    }
};

// Forms that are unpacked a few blocks at a time whatever the rows: their tiles are then those of
// q4_1, which need not be compiled once more.
template <PanelFormat Format>
struct VnniUnpackedTile {
    using V = Avx512Vector;
    using Block = PanelBlock;
    static constexpr std::size_t rows_to_unpack = 2 * tile_rows;
    static constexpr bool unpacks_meanwhile = false;
    static constexpr std::size_t blocks_at_once = 4;

    static void accumulate_packed(const std::byte* panel, std::size_t rows, std::size_t blocks,
                                  const ActivationBlock* x, float* acc) {
        Block unpacked[blocks_at_once];
        for (std::size_t first = 0; first < blocks; first += blocks_at_once) {
            const std::size_t left = blocks - first;
            const std::size_t count = left < blocks_at_once ? left : blocks_at_once;
            unpack_blocks(panel, first, count, unpacked);
            accumulate_unpacked(unpacked, rows, count, x + first * tile_rows, acc);
        }
    }
    static void unpack_blocks(const std::byte* panel, std::size_t first, std::size_t count,
                              Block* out) {
        const std::byte* at = panel + first * panel_block_bytes(Format);
        for (std::size_t b = 0; b < count; ++b, at += panel_block_bytes(Format)) {
            prefetch_ahead(at, panel_block_bytes(Format));
            out[b] = unpack<Format>(at);
        }
    }
    static void accumulate_unpacked(const Block* unpacked, std::size_t rows, std::size_t blocks,
                                    const ActivationBlock* x, float* acc) {
        accumulate_rows<unpacked_format(Format)>(UnpackedSource{unpacked}, rows, blocks, x, acc);
    }
};
template <>
struct VnniTile<PanelFormat::q4_k> : VnniUnpackedTile<PanelFormat::q4_k> {};
template <>
struct VnniTile<PanelFormat::q5_k> : VnniUnpackedTile<PanelFormat::q5_k> {};

// q6_k: two scales a block, so two sums. What undoes the offset of the first half's quants is not
// among the activations: it is summed here, 128 of each.
struct HalvesBlock {
    __m512i group[8];
    __m512 d[2];
    __m512 minus_bias_d[2];
};

template <>
struct VnniTile<PanelFormat::q6_k> {
    using V = Avx512Vector;
    using Block = HalvesBlock;
    static constexpr std::size_t rows_to_unpack = 4;
    static constexpr bool unpacks_meanwhile = false;

    static void accumulate_packed(const std::byte* panel, std::size_t rows, std::size_t blocks,
                                  const ActivationBlock* x, float* acc) {
        for (std::size_t b = 0; b < blocks; ++b) {
            Block unpacked;
            unpack_blocks(panel, b, 1, &unpacked);
            accumulate_unpacked(&unpacked, rows, 1, x + b * tile_rows, acc);
        }
    }
    static void unpack_blocks(const std::byte* panel, std::size_t first, std::size_t count,
                              Block* out) {
        constexpr PanelFormat format = PanelFormat::q6_k;
        const std::byte* at = panel + first * panel_block_bytes(format);
        for (std::size_t b = 0; b < count; ++b, at += panel_block_bytes(format)) {
            prefetch_ahead(at, panel_block_bytes(format));
            unpack_quants<format>(at, out[b].group);
            for (std::size_t half = 0; half < 2; ++half) {
                out[b].d[half] = block_scale<V, format>(at, half).v;
                out[b].minus_bias_d[half] = out[b].d[half] * _mm512_set1_ps(-integer_bias);
            }
        }
    }
    static void accumulate_unpacked(const Block* unpacked, std::size_t rows, std::size_t blocks,
                                    const ActivationBlock* x, float* acc) {
        for (std::size_t b = 0; b < blocks; ++b, x += tile_rows) {
            for (std::size_t t = 0; t < rows; ++t)
                extend(unpacked[b], x[t], acc + 16 * t);
        }
    }

 private:
    [[gnu::always_inline]] static __m512i four(const ActivationBlock& a, std::size_t g) {
        std::int32_t four;
        std::memcpy(&four, a.q + 4 * g, 4);
        return _mm512_set1_epi32(four);
    }
    [[gnu::always_inline]] static void extend(const Block& w, const ActivationBlock& a,
                                              float* chain) {
        const __m512i offset = _mm512_set1_epi8(-128);  // 128 to an instruction that reads unsigned
        __m512i first_offset = _mm512_setzero_si512(), sums[2];
        sums[0] = _mm512_set1_epi32(integer_bias_bits);
        sums[1] = _mm512_set1_epi32(a.start_u8);
#pragma GCC unroll 4
        for (std::size_t g = 0; g < 4; ++g) {
            first_offset = _mm512_dpbusd_epi32(first_offset, offset, four(a, g));
            sums[0] = _mm512_dpbusd_epi32(sums[0], w.group[g], four(a, g));
            sums[1] = _mm512_dpbusd_epi32(sums[1], w.group[g + 4], four(a, g + 4));
        }
        sums[0] = _mm512_sub_epi32(sums[0], first_offset);
        sums[1] = _mm512_add_epi32(sums[1], first_offset);
        __m512 value = _mm512_loadu_ps(chain);
        for (std::size_t half = 0; half < 2; ++half) {
            const __m512 product =
                _mm512_fmadd_ps(_mm512_castsi512_ps(sums[half]), w.d[half], w.minus_bias_d[half]);
            value = _mm512_fmadd_ps(product, _mm512_set1_ps(a.d), value);
        }
        _mm512_storeu_ps(chain, value);
    }
};

}  // namespace
}  // namespace troupe::cpu
