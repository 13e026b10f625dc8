// The plain set: portable C++, the definition of every result. Slow without hardware fma, and meant
// only for processors older than AVX2 and for tests.
#include <cmath>

#include "cpu/kernels/kernel_table.hpp"
#include "cpu/kernels/kernels.hpp"
#include "cpu/kernels/vector_plain.hpp"

namespace troupe::cpu {
namespace {

const std::uint8_t* bytes_at(const std::byte* data) {
    return reinterpret_cast<const std::uint8_t*>(data);
}

// The quant of (row `lane` of the panel, column k of the block), with its format's offset in it.
std::int32_t quant(PanelFormat format, const std::uint8_t* block, std::size_t lane, std::size_t k) {
    if (quant_bytes(format) == 512) return block[k / 4 * 64 + lane * 4 + k % 4];
    const std::uint8_t pair = block[k % 16 / 4 * 64 + lane * 4 + k % 4];
    return k < 16 ? pair & 15 : pair >> 4;
}

float half_at(const std::uint8_t* data, std::size_t index) {
    return half_to_float(static_cast<std::uint16_t>(data[2 * index] | data[2 * index + 1] << 8));
}

float byte_at(const std::uint8_t* data, std::size_t index) {
    return static_cast<float>(static_cast<std::int8_t>(data[index]));
}

// What the quant in column k is multiplied by, and what is added to that.
float scale(PanelFormat format, const std::uint8_t* block, std::size_t lane, std::size_t k) {
    const std::uint8_t* scales = block + quant_bytes(format);
    const float d = half_at(scales, lane);
    if (format == PanelFormat::q6_k) return d * byte_at(scales + (k < 16 ? 32 : 48), lane);
    const bool scaled = format == PanelFormat::q4_k || format == PanelFormat::q5_k;
    return scaled ? d * byte_at(scales + 64, lane) : d;
}
float minimum(PanelFormat format, const std::uint8_t* block, std::size_t lane) {
    const std::uint8_t* scales = block + quant_bytes(format);
    const float m = half_at(scales + 32, lane);
    return format == PanelFormat::q4_1 ? m : 0.0F - m * byte_at(scales + 80, lane);
}

// The value of the weight in column k of the block.
float weight(PanelFormat format, const std::uint8_t* block, std::size_t lane, std::size_t k) {
    const auto n = static_cast<float>(quant(format, block, lane, k));
    const float d = scale(format, block, lane, k);
    if (has_minimum(format)) return std::fma(d, n, minimum(format, block, lane));
    return d * (n - static_cast<float>(quant_offset(format)));
}

// Continues the chain by the columns [begin, end) of one block, which share a scale.
float extend(float acc, PanelFormat format, const std::uint8_t* block, std::size_t lane,
             const ActivationBlock& a, std::size_t begin, std::size_t end) {
    std::int32_t sum = integer_bias_bits;
    for (std::size_t k = begin; k < end; ++k)
        sum += (quant(format, block, lane, k) - quant_offset(format)) * a.q[k];
    // integer_bias * d is exact (20 bits), so this is isum * d rounded once.
    const float d = scale(format, block, lane, begin);
    const float product = std::fma(std::bit_cast<float>(sum), d, -(integer_bias * d));
    return std::fma(product, a.d, acc);
}

float dot(const PackedMatrix& w, std::size_t row, const QuantizedRows& x, std::size_t t) {
    const std::size_t lane = row % panel_rows;
    const std::uint8_t* const first = bytes_at(w.panel(row / panel_rows));
    const std::size_t blocks = w.columns / block_columns;
    const std::size_t columns = w.format == PanelFormat::q6_k ? 16 : block_columns;
    float acc = 0.0F;
    for (std::size_t b = 0; b < blocks; ++b) {
        const std::uint8_t* block = first + b * panel_block_bytes(w.format);
        const ActivationBlock& a = x.block(t, b);
        for (std::size_t k = 0; k < block_columns; k += columns)
            acc = extend(acc, w.format, block, lane, a, k, k + columns);
        if (has_minimum(w.format)) acc = std::fma(minimum(w.format, block, lane), a.s, acc);
    }
    for (std::size_t b = 0; b < blocks; ++b) {
        const std::uint8_t* block = first + b * panel_block_bytes(w.format);
        const OutlierBlock& outliers = x.outlier(t, b);
        const std::size_t place = outliers.place[t % tile_rows];
        if (place == 0) continue;
        acc = std::fma(weight(w.format, block, lane, place - 1), outliers.x[t % tile_rows], acc);
    }
    return acc;
}

void matmul_quantized(const PackedMatrix& w, const QuantizedRows& x, const MatmulPart& part) {
    const std::size_t end =
        part.panel_end * panel_rows < w.rows ? part.panel_end * panel_rows : w.rows;
    for (std::size_t t = part.row_begin; t < part.row_end; ++t) {
        for (std::size_t row = part.panel_begin * panel_rows; row < end; ++row) {
            float& out = part.out[t * part.out_stride + row];
            const float value = dot(w, row, x, t);
            out = part.mode == Accumulate::add ? out + value : value;
        }
    }
}

std::uint64_t multiply_add_limit(std::uint64_t rounds) {
    std::int32_t sum = 0;
    for (std::uint64_t i = 0; i < rounds; ++i) {
        sum += static_cast<std::int8_t>(i) * 3;
        __asm__ volatile("" : "+r"(sum));
    }
    return rounds;
}

}  // namespace

const Kernels& plain_kernels() {
    static constexpr Kernels kernels =
        kernel_table<PlainVector>("plain", matmul_quantized, multiply_add_limit);
    return kernels;
}

}  // namespace troupe::cpu
