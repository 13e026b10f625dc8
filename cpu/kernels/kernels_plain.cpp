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
    if (format == PanelFormat::q8_0) return block[k / 4 * 64 + lane * 4 + k % 4];
    const std::uint8_t pair = block[k % 16 / 4 * 64 + lane * 4 + k % 4];
    return k < 16 ? pair & 15 : pair >> 4;
}

float half_at(const std::uint8_t* data, std::size_t index) {
    return half_to_float(static_cast<std::uint16_t>(data[2 * index] | data[2 * index + 1] << 8));
}

// The value of the weight in column k of the block.
float weight(PanelFormat format, const std::uint8_t* block, std::size_t lane, std::size_t k) {
    const std::uint8_t* scales = block + (format == PanelFormat::q8_0 ? 512 : 256);
    const auto n = static_cast<float>(quant(format, block, lane, k));
    const float d = half_at(scales, lane);
    if (format == PanelFormat::q4_1) return std::fma(d, n, half_at(scales + 32, lane));
    return d * (n - (format == PanelFormat::q8_0 ? 128.0F : 8.0F));
}

float dot(const PackedMatrix& w, std::size_t row, const QuantizedRows& x, std::size_t t) {
    const std::size_t lane = row % panel_rows;
    const std::uint8_t* block = bytes_at(w.panel(row / panel_rows));
    const std::size_t quant_bytes = w.format == PanelFormat::q8_0 ? 512 : 256;
    float acc = 0.0F;
    for (std::size_t b = 0; b < w.columns / block_columns; ++b) {
        const ActivationBlock& a = x.block(t, b);
        std::int32_t sum = w.format == PanelFormat::q4_1   ? integer_bias_bits
                           : w.format == PanelFormat::q4_0 ? a.start_u4
                                                           : a.start_u8;
        for (std::size_t k = 0; k < block_columns; ++k) {
            sum += quant(w.format, block, lane, k) * a.q[k];
        }
        // integer_bias * d is exact (13 bits), so this is isum * d rounded once.
        const float d = half_at(block + quant_bytes, lane);
        const float product = std::fma(std::bit_cast<float>(sum), d, -(integer_bias * d));
        acc = std::fma(product, a.d, acc);
        if (w.format == PanelFormat::q4_1) {
            acc = std::fma(half_at(block + quant_bytes + 32, lane), a.s, acc);
        }
        block += panel_block_bytes(w.format);
    }
    block = bytes_at(w.panel(row / panel_rows));
    for (std::size_t b = 0; b < w.columns / block_columns; ++b) {
        const OutlierBlock& outliers = x.outlier(t, b);
        const std::size_t place = outliers.place[t % tile_rows];
        if (place != 0) {
            acc =
                std::fma(weight(w.format, block, lane, place - 1), outliers.x[t % tile_rows], acc);
        }
        block += panel_block_bytes(w.format);
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

}  // namespace

const Kernels& plain_kernels() {
    static constexpr Kernels kernels = kernel_table<PlainVector>("plain", matmul_quantized);
    return kernels;
}

}  // namespace troupe::cpu
