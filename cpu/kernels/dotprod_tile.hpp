// The register tile of ARM's dot products: one panel (a lane per weight row) by up to four rows of
// activations. Shared by the dotprod and i8mm sets; everything here has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cpu/kernels/kernel_types.hpp"
#include "cpu/kernels/outliers.hpp"
#include "cpu/kernels/vector_neon.hpp"

namespace troupe::cpu {
namespace {

// The instruction multiplies signed bytes: quants of 4 or 5 bits are such, those with 128 in them
// become so.
constexpr bool is_offset_byte(PanelFormat format) {
    return quant_offset(format) == 128;
}
constexpr bool is_4_bit(PanelFormat format) {
    return quant_bytes(format) == 256;
}
// q6_k has two sums a block, and a factor to each.
constexpr std::size_t sums_of_block(PanelFormat format) {
    return format == PanelFormat::q6_k ? 2 : 1;
}
// What an unpacked block is computed as.
constexpr PanelFormat unpacked_format(PanelFormat format) {
    return has_minimum(format) ? PanelFormat::q4_1 : format;
}

// The float factors of a block.
struct BlockFactors {
    NeonVector d[2];
    NeonVector minus_bias_d[2];  // -(integer_bias * d), exact
    NeonVector m;                // forms with a minimum
};

template <PanelFormat Format>
[[gnu::always_inline]] inline BlockFactors block_factors(const std::byte* block) {
    BlockFactors out;
    for (std::size_t i = 0; i < sums_of_block(Format); ++i) {
        out.d[i] = block_scale<NeonVector, Format>(block, i);
        out.minus_bias_d[i] = out.d[i] * NeonVector::set(-integer_bias);
    }
    if constexpr (has_minimum(Format)) out.m = block_minimum<NeonVector, Format>(block);
    return out;
}

// Four weight rows by the columns 4g .. 4g + 3, and by those 16 further on.
struct QuantPair {
    int8x16_t first, second;
};

template <PanelFormat Format>
[[gnu::always_inline]] inline QuantPair load_quants(const std::byte* block, std::size_t g,
                                                    std::size_t quarter) {
    const auto* at = reinterpret_cast<const std::uint8_t*>(block) + 64 * g + 16 * quarter;
    const uint8x16_t first = vld1q_u8(at);
    if constexpr (is_4_bit(Format)) {
        return {vreinterpretq_s8_u8(vandq_u8(first, vdupq_n_u8(15))),
                vreinterpretq_s8_u8(vshrq_n_u8(first, 4))};
    } else {
        const uint8x16_t flip = vdupq_n_u8(is_offset_byte(Format) ? 128 : 0);
        return {vreinterpretq_s8_u8(veorq_u8(first, flip)),
                vreinterpretq_s8_u8(veorq_u8(vld1q_u8(at + 256), flip))};
    }
}

struct UnpackedBlock {
    std::int8_t group[8][64];  // group g: [16 rows][columns 4g .. 4g + 3]
    BlockFactors factors;
};

// Where a tile takes its blocks from: the panel itself, or blocks unpacked once for many tiles.
template <PanelFormat Format>
struct PackedSource {
    const std::byte* panel;
    [[gnu::always_inline]] const std::byte* block(std::size_t b) const {
        return panel + b * panel_block_bytes(Format);
    }
    [[gnu::always_inline]] void prefetch(std::size_t b) const {
        prefetch_ahead(block(b), panel_block_bytes(Format));
    }
    [[gnu::always_inline]] QuantPair quants(std::size_t b, std::size_t g,
                                            std::size_t quarter) const {
        return load_quants<Format>(block(b), g, quarter);
    }
    [[gnu::always_inline]] BlockFactors factors(std::size_t b) const {
        return block_factors<Format>(block(b));
    }
};
struct UnpackedSource {
    const UnpackedBlock* blocks;
    [[gnu::always_inline]] void prefetch(std::size_t) const {}
    [[gnu::always_inline]] QuantPair quants(std::size_t b, std::size_t g,
                                            std::size_t quarter) const {
        return {vld1q_s8(blocks[b].group[g] + 16 * quarter),
                vld1q_s8(blocks[b].group[g + 4] + 16 * quarter)};
    }
    [[gnu::always_inline]] const BlockFactors& factors(std::size_t b) const {
        return blocks[b].factors;
    }
};

// What an integer sum begins with: quants of q4_0 still have their offset.
template <PanelFormat Format>
[[gnu::always_inline]] inline std::int32_t sum_start(const ActivationBlock& x) {
    return Format == PanelFormat::q4_0 ? x.start_u4 : integer_bias_bits;
}

template <std::size_t Quarter>
[[gnu::always_inline]] inline float32x4_t quarter_of(const NeonVector& v) {
    if constexpr (Quarter == 0) return v.a;
    if constexpr (Quarter == 1) return v.b;
    if constexpr (Quarter == 2) return v.c;
    return v.d;
}

// Continues the chains of four weight rows by a block's sums.
template <PanelFormat Format, std::size_t Quarter>
[[gnu::always_inline]] inline float32x4_t extend_chain(const int32x4_t* sums, const BlockFactors& w,
                                                       const ActivationBlock& x,
                                                       float32x4_t chain) {
    for (std::size_t i = 0; i < sums_of_block(Format); ++i) {
        const float32x4_t product =
            vfmaq_f32(quarter_of<Quarter>(w.minus_bias_d[i]), vreinterpretq_f32_s32(sums[i]),
                      quarter_of<Quarter>(w.d[i]));
        chain = vfmaq_n_f32(chain, product, x.d);
    }
    if constexpr (has_minimum(Format)) {
        chain = vfmaq_n_f32(chain, quarter_of<Quarter>(w.m), x.s);
    }
    return chain;
}

// One block by `Rows` rows. Lanes of the instruction are constants, hence the sequences.
template <PanelFormat Format, std::size_t Rows>
struct BlockProduct {
    static constexpr std::size_t sums_count = sums_of_block(Format);

    int32x4_t sums[Rows][4][sums_count];
    int8x16_t low[Rows], high[Rows];

    [[gnu::always_inline]] explicit BlockProduct(const ActivationBlock* x) {
        for (std::size_t t = 0; t < Rows; ++t) {
            low[t] = vld1q_s8(x[t].q);
            high[t] = vld1q_s8(x[t].q + 16);
            const int32x4_t start = vdupq_n_s32(sum_start<Format>(x[t]));
            for (auto& quarter : sums[t]) {
                for (int32x4_t& sum : quarter)
                    sum = start;
            }
        }
    }

    template <class Source, std::size_t... Group>
    [[gnu::always_inline]] void multiply(const Source& source, std::size_t b,
                                         std::index_sequence<Group...>) {
        (multiply_group<Group>(source, b), ...);
    }
    template <std::size_t Group, class Source>
    [[gnu::always_inline]] void multiply_group(const Source& source, std::size_t b) {
#pragma GCC unroll 4
        for (std::size_t quarter = 0; quarter < 4; ++quarter) {
            const QuantPair w = source.quants(b, Group, quarter);
#pragma GCC unroll 4
            for (std::size_t t = 0; t < Rows; ++t) {
                int32x4_t* const sum = sums[t][quarter];
                int32x4_t& last = sum[sums_count - 1];
                sum[0] = vdotq_laneq_s32(sum[0], w.first, low[t], Group);
                last = vdotq_laneq_s32(last, w.second, high[t], Group);
            }
        }
    }

    // Continues row t's chain.
    template <std::size_t... Quarter>
    [[gnu::always_inline]] void extend(const BlockFactors& w, const ActivationBlock* x,
                                       std::size_t t, float32x4_t (&chain)[4],
                                       std::index_sequence<Quarter...>) const {
        ((chain[Quarter] =
              extend_chain<Format, Quarter>(sums[t][Quarter], w, x[t], chain[Quarter])),
         ...);
    }
};

// GCC would keep what was stored in registers that it does not have, and spill sums for it.
[[gnu::always_inline]] inline void leave_in_memory() {
    __asm__ volatile("" ::: "memory");
}

// Continues the chains acc[Rows][16] over `blocks` blocks; x is the first row's first block. More
// than two rows leave no registers for their chains from one block to the next.
template <PanelFormat Format, std::size_t Rows, class Source>
void accumulate_tile(const Source& source, std::size_t blocks, const ActivationBlock* x,
                     float* acc) {
    constexpr auto four = std::make_index_sequence<4>();
    constexpr bool chains_stay = Rows <= 2;
    float32x4_t chains[Rows][4];
    for (std::size_t b = 0; b < blocks; ++b, x += tile_rows) {
        source.prefetch(b);
        if (!chains_stay) leave_in_memory();
        BlockProduct<Format, Rows> product(x);
        product.multiply(source, b, four);
        const BlockFactors& factors = source.factors(b);
#pragma GCC unroll 4
        for (std::size_t t = 0; t < Rows; ++t) {
            float* const at = acc + panel_rows * t;
            if (!chains_stay || b == 0) {
                for (std::size_t i = 0; i < 4; ++i)
                    chains[t][i] = vld1q_f32(at + 4 * i);
            }
            product.extend(factors, x, t, chains[t], four);
            if (!chains_stay || b + 1 == blocks) {
                for (std::size_t i = 0; i < 4; ++i)
                    vst1q_f32(at + 4 * i, chains[t][i]);
            }
        }
    }
}

// The same for any number of rows. Twice the sums leave registers for half the rows.
template <PanelFormat Format, class Source>
void accumulate_rows(const Source& source, std::size_t rows, std::size_t blocks,
                     const ActivationBlock* x, float* acc) {
    constexpr std::size_t most = 4 / sums_of_block(Format);
    std::size_t t = 0;
    for (; t + most <= rows; t += most)
        accumulate_tile<Format, most>(source, blocks, x + t, acc + panel_rows * t);
    if constexpr (most == 4) {
        if (rows - t == 3) accumulate_tile<Format, 3>(source, blocks, x + t, acc + panel_rows * t);
        if (rows - t == 2) accumulate_tile<Format, 2>(source, blocks, x + t, acc + panel_rows * t);
    }
    if (rows - t == 1) accumulate_tile<Format, 1>(source, blocks, x + t, acc + panel_rows * t);
}

// For MatmulDriver.
template <PanelFormat Format>
struct DotprodTile {
    using V = NeonVector;
    using Block = UnpackedBlock;
    static constexpr std::size_t rows_to_unpack = 5;
    static constexpr bool unpacks_meanwhile = false;

    static void accumulate_packed(const std::byte* panel, std::size_t rows, std::size_t blocks,
                                  const ActivationBlock* x, float* acc) {
        accumulate_rows<Format>(PackedSource<Format>{panel}, rows, blocks, x, acc);
    }
    static void unpack_blocks(const std::byte* panel, std::size_t first, std::size_t count,
                              Block* out) {
        const PackedSource<Format> source{panel};
        for (std::size_t b = first; b < first + count; ++b, ++out) {
            source.prefetch(b);
            for (std::size_t i = 0; i < 16; ++i) {
                const QuantPair w = source.quants(b, i / 4, i % 4);
                vst1q_s8(out->group[0] + 16 * i, w.first);
                vst1q_s8(out->group[4] + 16 * i, w.second);
            }
            out->factors = source.factors(b);
        }
    }
    static void accumulate_unpacked(const Block* unpacked, std::size_t rows, std::size_t blocks,
                                    const ActivationBlock* x, float* acc) {
        accumulate_rows<unpacked_format(Format)>(UnpackedSource{unpacked}, rows, blocks, x, acc);
    }
};

}  // namespace
}  // namespace troupe::cpu
