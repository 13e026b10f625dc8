// The set for ARM processors that multiply matrices of bytes, 2 x 8 by 8 x 2: the dotprod set with
// twice the multiply-adds an instruction where a panel is unpacked for some rows.
#include "cpu/kernels/dotprod_tile.hpp"
#include "cpu/kernels/kernel_table.hpp"
#include "cpu/kernels/matmul_driver.hpp"
#include "cpu/kernels/sets.hpp"

namespace troupe::cpu {
namespace {

// Weight rows in pairs: quants[c][p] are rows 2p and 2p + 1 by columns 8c .. 8c + 7.
struct PairedBlock {
    std::int8_t quants[4][8][16];
    BlockFactors factors;
};

// Two adjacent groups of four rows by four columns, as two pairs of rows by eight columns.
[[gnu::always_inline]] inline void store_pairs(int8x16_t left, int8x16_t right,
                                               std::int8_t (*out)[16]) {
    const int32x4_t l = vreinterpretq_s32_s8(left), r = vreinterpretq_s32_s8(right);
    vst1q_s8(out[0], vreinterpretq_s8_s32(vzip1q_s32(l, r)));
    vst1q_s8(out[1], vreinterpretq_s8_s32(vzip2q_s32(l, r)));
}

template <PanelFormat Format>
[[gnu::always_inline]] inline void unpack_pairs(const std::byte* block, PairedBlock& out) {
    for (std::size_t g = 0; g < 4; g += 2) {
        for (std::size_t quarter = 0; quarter < 4; ++quarter) {
            const QuantPair left = load_quants<Format>(block, g, quarter);
            const QuantPair right = load_quants<Format>(block, g + 1, quarter);
            store_pairs(left.first, right.first, out.quants[g / 2] + 2 * quarter);
            store_pairs(left.second, right.second, out.quants[2 + g / 2] + 2 * quarter);
        }
    }
    out.factors = block_factors<Format>(block);
}

// One block by two rows of activations: sums[p] of weight rows 2p and 2p + 1, each by both.
template <PanelFormat Format>
struct PairProduct {
    static constexpr std::size_t sums_count = sums_of_block(Format);

    int32x4_t sums[8][sums_count];
    int8x16_t x[4];  // both rows by columns 8c .. 8c + 7

    [[gnu::always_inline]] PairProduct(const ActivationBlock& even, const ActivationBlock& odd) {
        for (std::size_t half = 0; half < 2; ++half) {
            const int64x2_t p = vreinterpretq_s64_s8(vld1q_s8(even.q + 16 * half));
            const int64x2_t q = vreinterpretq_s64_s8(vld1q_s8(odd.q + 16 * half));
            x[2 * half] = vreinterpretq_s8_s64(vzip1q_s64(p, q));
            x[2 * half + 1] = vreinterpretq_s8_s64(vzip2q_s64(p, q));
        }
        const int32x4_t start =
            vzip1q_s32(vdupq_n_s32(sum_start<Format>(even)), vdupq_n_s32(sum_start<Format>(odd)));
        for (auto& pair : sums) {
            for (int32x4_t& sum : pair)
                sum = start;
        }
    }
    [[gnu::always_inline]] void multiply(int8x16_t weights, std::size_t c, std::size_t p) {
        int32x4_t& sum = sums[p][c * sums_count / 4];
        sum = vmmlaq_s32(sum, weights, x[c]);
    }

    // Continues one row's chain, of the even row or the odd one.
    template <bool Odd, std::size_t... Quarter>
    [[gnu::always_inline]] void extend(const BlockFactors& w, const ActivationBlock& a,
                                       float* chain, std::index_sequence<Quarter...>) const {
        (extend_quarter<Odd, Quarter>(w, a, chain + 4 * Quarter), ...);
    }
    template <bool Odd, std::size_t Quarter>
    [[gnu::always_inline]] void extend_quarter(const BlockFactors& w, const ActivationBlock& a,
                                               float* chain) const {
        int32x4_t own[sums_count];
        for (std::size_t i = 0; i < sums_count; ++i) {
            const int32x4_t first = sums[2 * Quarter][i], second = sums[2 * Quarter + 1][i];
            own[i] = Odd ? vuzp2q_s32(first, second) : vuzp1q_s32(first, second);
        }
        vst1q_f32(chain, extend_chain<Format, Quarter>(own, w, a, vld1q_f32(chain)));
    }
};

// Continues acc[Rows][16] by one block; 1, 2 or 4 rows. One that is alone is its own partner.
template <PanelFormat Format, std::size_t Rows>
[[gnu::always_inline]] inline void accumulate_pairs(const PairedBlock& w, const ActivationBlock* x,
                                                    float* acc) {
    constexpr std::size_t pairs = (Rows + 1) / 2, last = 2 * (pairs - 1);
    constexpr std::size_t partner = Rows == 1 ? 0 : 1;
    PairProduct<Format> products[] = {{x[0], x[partner]}, {x[last], x[last + partner]}};
#pragma GCC unroll 4
    for (std::size_t c = 0; c < 4; ++c) {
#pragma GCC unroll 8
        for (std::size_t p = 0; p < 8; ++p) {
            const int8x16_t weights = vld1q_s8(w.quants[c][p]);
            for (std::size_t i = 0; i < pairs; ++i)
                products[i].multiply(weights, c, p);
        }
    }
    constexpr auto four = std::make_index_sequence<4>();
#pragma GCC unroll 4
    for (std::size_t t = 0; t < Rows; ++t) {
        float* const chain = acc + panel_rows * t;
        if (t % 2 == 0)
            products[t / 2].template extend<false>(w.factors, x[t], chain, four);
        else
            products[t / 2].template extend<true>(w.factors, x[t], chain, four);
    }
}

template <PanelFormat Format, std::size_t Rows>
void accumulate_paired_tile(const PairedBlock* unpacked, std::size_t blocks,
                            const ActivationBlock* x, float* acc) {
    for (std::size_t b = 0; b < blocks; ++b, x += tile_rows) {
        leave_in_memory();
        accumulate_pairs<Format, Rows>(unpacked[b], x, acc);
    }
}

// Any number of rows; with two sums a block, as in accumulate_rows, half as many at a time.
template <PanelFormat Format>
void accumulate_paired_rows(const PairedBlock* unpacked, std::size_t rows, std::size_t blocks,
                            const ActivationBlock* x, float* acc) {
    constexpr std::size_t most = 4 / sums_of_block(Format);
    std::size_t t = 0;
    for (; t + most <= rows; t += most)
        accumulate_paired_tile<Format, most>(unpacked, blocks, x + t, acc + panel_rows * t);
    if (most == 4 && t + 2 <= rows) {
        accumulate_paired_tile<Format, 2>(unpacked, blocks, x + t, acc + panel_rows * t);
        t += 2;
    }
    if (t < rows) accumulate_paired_tile<Format, 1>(unpacked, blocks, x + t, acc + panel_rows * t);
}

template <PanelFormat Format>
struct I8mmTile : DotprodTile<Format> {
    using Block = PairedBlock;
    static constexpr std::size_t rows_to_unpack = 4;

    static void unpack_blocks(const std::byte* panel, std::size_t first, std::size_t count,
                              Block* out) {
        const std::byte* at = panel + first * panel_block_bytes(Format);
        for (std::size_t b = 0; b < count; ++b, at += panel_block_bytes(Format)) {
            prefetch_ahead(at, panel_block_bytes(Format));
            unpack_pairs<Format>(at, out[b]);
        }
    }
    static void accumulate_unpacked(const Block* unpacked, std::size_t rows, std::size_t blocks,
                                    const ActivationBlock* x, float* acc) {
        accumulate_paired_rows<unpacked_format(Format)>(unpacked, rows, blocks, x, acc);
    }
};

std::uint64_t multiply_add_limit(std::uint64_t rounds) {
    constexpr int chains = 16;  // more than the instruction's latency times its rate
    const int8x16_t weights = vdupq_n_s8(7), x = vdupq_n_s8(-3);
    int32x4_t sums[chains] = {};
    for (std::uint64_t i = 0; i < rounds; ++i)
        for (int32x4_t& sum : sums)
            sum = vmmlaq_s32(sum, weights, x);
    for (int32x4_t& sum : sums)
        __asm__ volatile("" : "+w"(sum));
    return rounds * chains * 32;
}

}  // namespace

const Kernels& i8mm_kernels() {
    static constexpr Kernels kernels =
        kernel_table<NeonVector>("i8mm", matmul_quantized<I8mmTile>, multiply_add_limit);
    return kernels;
}

}  // namespace troupe::cpu
