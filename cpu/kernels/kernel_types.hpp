// The arithmetic of the CPU backend: data layouts and one table of functions per instruction set.
// Owns nothing, runs on any thread, sends nothing: every function is pure in its arguments, and two
// threads may call any of them at once as long as the outputs do not overlap.
//
// All sets give the same bits, and a row's result depends on that row alone: not on the other rows
// of the call, not on how panels, rows or heads are split over calls. To that end every output
// element is one fixed chain of IEEE float32 operations, stated at each function; fma(x, y, z) is
// one rounding. Weights, norms and tables must be finite. Non-finite activations give non-finite
// results in their own row and nowhere else (which NaN is not specified).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cpu/kernels/kv_layout.hpp"
#include "cpu/kernels/panel.hpp"

namespace troupe::cpu {

// ---- Activations ---------------------------------------------------------------------------

inline constexpr std::size_t tile_rows = 16;  // rows of activations that lie together

// 1.5 * 2^23 as float32 bits. An integer n with |n| < 2^22 added to these bits is the float
// 1.5 * 2^23 + n: integer accumulators start here and become floats without a conversion.
inline constexpr std::int32_t integer_bias_bits = 0x4B400000;
inline constexpr float integer_bias = 12582912.0F;

// 32 activations x as int8: d = M / 127, q = round_half_even(x * (127 / M)), so |q| <= 127. M is
// max|x|, unless exactly one x is larger than max|x| / outlier_ratio (of the rows): that one is the
// block's outlier, kept as it is in the tile's OutlierBlock, and here q and M are those of a block
// with 0 in its place. M < 2^-100 gives a block of zeros; a non-finite x gives d = s = NaN with q =
// 0 and no outlier.
struct ActivationBlock {
    std::int8_t q[block_columns];
    float d;
    float s;                // d * float(sum of q)
    std::int32_t start_u4;  // integer_bias_bits - 8 * sum of q: undoes the offset of Q4_0
    std::int32_t start_u8;  // integer_bias_bits - 128 * sum of q: undoes the offset of Q8_0
};
static_assert(sizeof(ActivationBlock) == 48);

// The outliers of 32 columns of a tile, at most one a row.
struct OutlierBlock {
    float x[tile_rows];
    std::uint8_t place[tile_rows];  // 1 + its column in the block; 0: this row has none
};
static_assert(sizeof(OutlierBlock) == 80);

// View of quantised rows, [rows / 16][columns / 32][16 rows] blocks and [rows / 16][columns / 32]
// blocks of outliers, both 64-byte aligned; the memory is the caller's. Rows are written and read
// independently.
struct QuantizedRows {
    ActivationBlock* blocks = nullptr;
    OutlierBlock* outliers = nullptr;
    std::size_t columns = 0;  // a multiple of 32
    float outlier_ratio = usual_outlier_ratio;

    [[nodiscard, gnu::always_inline]] std::size_t blocks_of_row() const {
        return columns / block_columns;
    }
    [[nodiscard, gnu::always_inline]] ActivationBlock& block(std::size_t row,
                                                             std::size_t index) const {
        return blocks[(row / tile_rows * blocks_of_row() + index) * tile_rows + row % tile_rows];
    }
    [[nodiscard, gnu::always_inline]] OutlierBlock& outlier(std::size_t row,
                                                            std::size_t index) const {
        return outliers[row / tile_rows * blocks_of_row() + index];
    }

    // The tile that holds `row` as rows 0..15, from a block on and `part_columns` wide.
    [[nodiscard]] QuantizedRows tile(std::size_t row, std::size_t first_block,
                                     std::size_t part_columns) const {
        const std::size_t at = row / tile_rows * blocks_of_row() + first_block;
        return {blocks + at * tile_rows, outliers + at, part_columns, outlier_ratio};
    }
};

// Memory for `rows` quantised rows: blocks, with and without the 16 rows each is there for.
[[nodiscard]] constexpr std::size_t outlier_blocks(std::size_t rows, std::size_t columns) {
    return (rows + tile_rows - 1) / tile_rows * (columns / block_columns);
}
[[nodiscard]] constexpr std::size_t quantized_blocks(std::size_t rows, std::size_t columns) {
    return outlier_blocks(rows, columns) * tile_rows;
}

// The outliers of at most 128 rows by block and column, at most so many: made by matmul_quantized.
struct OutlierList {
    static constexpr std::size_t capacity = 1024;

    struct Entry {
        float x;
        std::uint16_t row;     // from the first
        std::uint16_t column;  // index into columns
    };
    struct Column {
        std::uint32_t block;
        std::uint16_t place;  // 1 + its column in the block
        std::uint16_t entry_begin;
    };

    // What it was made for; product 0: nothing that comes again.
    std::uint64_t product;
    const ActivationBlock* first;
    std::size_t rows;

    std::size_t listed_blocks, column_count, entry_count;
    Column columns[capacity];
    Entry entries[capacity];
};

// Where a thread keeps lists from one call to the next, for some groups of rows.
struct OutlierLists {
    static constexpr std::size_t kept = 8;

    OutlierList list[kept] = {};
    std::size_t next = 0;  // to be given away
};

// View of float rows: row t at data + t * stride (stride in floats).
struct FloatRows {
    const float* data = nullptr;
    std::size_t stride = 0;
};

// ---- Matrix products -------------------------------------------------------------------------

enum class Accumulate { store, add };  // out = product, or out = out + product (one addition)

// Which part of a product a call computes: output columns [16 * panel_begin, 16 * panel_end) cut
// to the matrix, for rows [row_begin, row_end). Element (row t, weight row r) is
// out[t * out_stride + r]; `out` is row 0, column 0 of the whole.
struct MatmulPart {
    std::size_t panel_begin = 0, panel_end = 0;
    std::size_t row_begin = 0, row_end = 0;
    float* out = nullptr;
    std::size_t out_stride = 0;  // floats
    Accumulate mode = Accumulate::store;

    // Parts that are computed by one thread from the same rows may share their lists of outliers:
    // the thread's own memory, and a number above 0 that no product of other rows has had. Only
    // speed depends on it.
    OutlierLists* outliers = nullptr;
    std::uint64_t product = 0;
};

// ---- Attention -------------------------------------------------------------------------------

// Consecutive rows of one sequence: row i stands at absolute position p = `position` + i and
// attends to the positions 0 .. p, all of which must be stored already. With a window, to the first
// `sinks` of them and the last `window` only; pages that hold none of these are not read, and their
// entries of the page table may be anything.
struct AttentionPart {
    KvPages kv;
    const std::uint32_t* pages = nullptr;  // page of absolute positions 16 * n .. 16 * n + 15
    std::size_t position = 0;
    std::size_t rows = 0;
    std::size_t window = 0;  // 0: all
    std::size_t sinks = 0;
    const float* q = nullptr;  // [rows][heads][head_dim], rows q_stride floats apart, rotated
    std::size_t q_stride = 0;
    const float* q_sinks = nullptr;  // likewise, rotated to look at the sinks, if there are any
    std::size_t q_sinks_stride = 0;
    float* out = nullptr;  // [rows][heads][head_dim], rows out_stride floats apart
    std::size_t out_stride = 0;
    std::size_t heads = 0;                     // query heads, a multiple of kv_heads
    std::size_t head_begin = 0, head_end = 0;  // query heads to compute; any sub-range
    float scale = 1.0F;                        // of the scores: mostly 1 / sqrt(head_dim)
    float softcap = 0.0F;                      // not 0: scaled scores s become cap * tanh(s / cap)
    float* scratch = nullptr;  // attention_scratch_floats(position + rows, ...), 64-aligned
};

inline constexpr std::size_t attention_tile_max = 12;  // (row, head) pairs that share a K/V load

// Floats of scratch for attending to `tokens` positions; the calling thread's own.
[[nodiscard]] constexpr std::size_t attention_scratch_floats(std::size_t tokens,
                                                             std::size_t head_dim,
                                                             std::size_t window = 0,
                                                             std::size_t sinks = 0) {
    const auto pages_of = [](std::size_t count) { return (count + page_tokens - 1) / page_tokens; };
    std::size_t pages = pages_of(tokens);
    if (window > 0) {
        // A window may begin and end within a page; a page with sinks may be in it, too.
        const std::size_t in_window = pages_of(window + attention_tile_max) + 1;
        pages = (in_window < pages ? in_window : pages) + pages_of(sinks);
    }
    return attention_tile_max * (pages * page_tokens + 2 * head_dim + page_tokens);
}

// ---- The table ---------------------------------------------------------------------------------

struct Kernels {
    std::string_view name;  // "plain", "avx2", "avx_vnni", "avx512", "amx", "dotprod", "i8mm"

    // Quantised weights times quantised rows. Over blocks b ascending, from 0:
    //   isum = exact integer sum of (weight - offset) * q over the 32 columns
    //   acc  = fma(round(isum * d_weight), d_row, acc)
    //   acc  = fma(m_weight, s_row, acc)         forms with a minimum, after the line above
    // where the offset is quant_offset(), and d_weight = d * scale, m_weight = -(m * minimum) where
    // the form has these (exact in float32). q6_k does the first two lines for columns 0 .. 15,
    // then for 16 .. 31, each with its d_weight. Then over the row's outliers x, ascending:
    //   acc  = fma(round((weight - offset) * d_weight + m_weight), x, acc)
    void (*matmul_quantized)(const PackedMatrix& w, const QuantizedRows& x, const MatmulPart& part);

    // Weights in float panels, widened to float32, times float rows: acc = fma(w[r][k], x[t][k],
    // acc), k ascending from 0.
    void (*matmul_float)(const PackedMatrix& w, const FloatRows& x, const MatmulPart& part);

    // Row `row` of `out` from out.columns floats.
    void (*quantize)(const float* x, const QuantizedRows& out, std::size_t row);

    // out[k] = (x[k] * r) * weight[k] with r = 1 / sqrt(S / columns + epsilon), S the sum of
    // squares in 16 lanes (lane k % 16: fma(x, x, lane), ascending), lanes then added pairwise: i
    // and i + 8, i and i + 4, i and i + 2, 0 and 1. In place is allowed.
    void (*rms_norm)(const float* x, const float* weight, std::size_t columns, float epsilon,
                     float* out);
    void (*rms_norm_quantize)(const float* x, const float* weight, float epsilon,
                              const QuantizedRows& out, std::size_t row);

    // out[k] = gate / (1 + exp(-gate)) * up, with the exponential of all sets (about 1 ulp). In
    // place (out == gate or up) is allowed.
    void (*silu_mul)(const float* gate, const float* up, std::size_t count, float* out);
    void (*silu_mul_quantize)(const float* gate, const float* up, const QuantizedRows& out,
                              std::size_t row);

    // The same with gelu(gate) = gate / (1 + exp(-2 u)) for silu, where u = sqrt(2 / pi) (gate +
    // 0.044715 gate^3).
    void (*gelu_mul)(const float* gate, const float* up, std::size_t count, float* out);
    void (*gelu_mul_quantize)(const float* gate, const float* up, const QuantizedRows& out,
                              std::size_t row);

    // x[k] = cap * tanh(x[k] / cap).
    void (*soft_cap)(float* x, std::size_t count, float cap);

    // x[k] = x[k] + y[k].
    void (*add)(float* x, const float* y, std::size_t count);

    // Rotates the first 2 * pairs values of each of `heads` heads, pair (2i, 2i + 1) by the i-th
    // (cos, sin) of `angles` (a row of RopeTable): a' = fma(a, cos, -(b * sin)),
    // b' = fma(b, cos, a * sin). Heads lie head_dim floats apart.
    void (*rope)(float* x, std::size_t heads, std::size_t head_dim, const float* angles,
                 std::size_t pairs);

    // Writes one token's keys and values, each [kv_heads][head_dim] floats, into slot 0..15 of a
    // page, in the form of the cache: f16 by rounding to nearest even (beyond 65,504: infinite),
    // int8 as round_half_even(x * (127 / max|x|)), int4 as round_half_even((x - offset) * (1 /
    // step)) within 0..15 (keys: 0..63). A token with a number that is not finite becomes NaN.
    void (*store_kv)(const KvPages& kv, std::uint32_t page, std::size_t slot, const float* k,
                     const float* v);

    // softmax(q k^T * scale) v per (row, head), over floats made of what is stored (kv_layout.hpp).
    // Scores: fma over d ascending from 0, times scale, capped as by soft_cap; exact maximum; p =
    // exp(score - maximum); sum of p in 16 lanes (lane = slot) by page ascending, then the tree of
    // rms_norm; values: fma(p, v, acc), positions ascending from 0; times 1 / sum. Sinks come
    // before the window.
    void (*attention)(const AttentionPart& part);

    // Index of the largest value, the lowest among equals; NaNs never win; 0 if there is nothing
    // else.
    std::size_t (*argmax)(const float* x, std::size_t count);

    // The largest value (-infinity for none; NaNs never win).
    float (*max)(const float* x, std::size_t count);

    // The most that matmul_quantized could reach: the set's integer multiply-adds, out of registers
    // alone, `rounds` times over. Returns how many multiply-adds these were.
    std::uint64_t (*multiply_add_limit)(std::uint64_t rounds);
};

}  // namespace troupe::cpu
