// Repacking of weights into panels, and the plain reading of the file's own blocks.
#include "cpu/kernels/packing.hpp"

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/kernels/half.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

std::uint16_t read_u16(const std::byte* at) {
    std::uint16_t value;
    std::memcpy(&value, at, sizeof(value));
    return value;
}

float read_half(const std::byte* at) {
    return half_to_float(read_u16(at));
}

// Bytes of one file block of 32 columns, or of one value for the float types.
std::size_t raw_unit_bytes(WeightType type) {
    switch (type) {
        case WeightType::f32:
            return 4;
        case WeightType::f16:
        case WeightType::bf16:
            return 2;
        case WeightType::q4_0:
            return 18;
        case WeightType::q4_1:
            return 20;
        case WeightType::q8_0:
            return 34;
        case WeightType::q4_k:
            return 22;
        case WeightType::q5_k:
            return 38;
        case WeightType::q6_k:
            return 36;
    }
    return 0;
}

bool is_block_type(WeightType type) {
    return !is_float(native_panel_format(type));
}

// Where a raw block's parts begin. Scales are copied as they are: halves first, then bytes.
struct BlockParts {
    std::size_t halves;  // how many
    std::size_t bytes;   // likewise
    std::size_t quants_at() const { return 2 * halves + bytes; }
};
BlockParts parts_of(WeightType type) {
    switch (type) {
        case WeightType::q4_1:
            return {2, 0};
        case WeightType::q4_k:
        case WeightType::q5_k:
            return {2, 2};
        case WeightType::q6_k:
            return {1, 2};
        default:
            return {1, 0};
    }
}

float byte_at(const std::byte* at) {
    return static_cast<float>(static_cast<std::int8_t>(*at));
}

// The products with d are exact, so every value is rounded once.
void dequantize_block(WeightType type, const std::byte* raw, float* out) {
    const PanelFormat format = native_panel_format(type);
    const BlockParts parts = parts_of(type);
    const std::byte* bytes = raw + 2 * parts.halves;
    const std::byte* quants = raw + parts.quants_at();
    const float d = read_half(raw);
    float minimum = 0.0F;
    if (parts.halves == 2) minimum = read_half(raw + 2);
    if (type == WeightType::q4_k || type == WeightType::q5_k) minimum *= -byte_at(bytes + 1);
    for (std::size_t j = 0; j < block_columns; ++j) {
        float scale = d;
        if (parts.bytes != 0) scale *= byte_at(bytes + (type == WeightType::q6_k ? j / 16 : 0));
        float quant = 0.0F;
        if (quant_bytes(format) == 256) {  // two values a byte, 16 bytes a block
            const auto pair = static_cast<unsigned>(quants[j % 16]);
            quant = static_cast<float>(j < 16 ? pair & 15U : pair >> 4);
            quant -= static_cast<float>(quant_offset(format));
        } else {
            quant = byte_at(quants + j);
        }
        out[j] = scale * quant + minimum;
    }
}

// The raw row that is row `row` of the stacked matrix, and the part it lies in.
struct RawRow {
    WeightType type = WeightType::f32;
    const std::byte* data = nullptr;  // null past the last row
};

RawRow find_row(std::span<const RawMatrix> parts, std::size_t row) {
    for (const RawMatrix& part : parts) {
        if (row < part.rows) {
            return {part.type, part.data + row * raw_row_bytes(part.type, part.columns)};
        }
        row -= part.rows;
    }
    return {};
}

// Writes row `lane` of one quantised panel; false if a scale is not finite.
bool pack_block_row(const RawRow& raw, std::size_t lane, const PackedMatrix& out,
                    std::byte* panel) {
    const BlockParts parts = parts_of(raw.type);
    const std::size_t groups = quant_bytes(out.format) / 64;
    const std::uint32_t flip = quant_offset(out.format) == 128 ? 0x80808080U : 0;
    bool finite = true;
    for (std::size_t b = 0; b < out.columns / block_columns; ++b) {
        const std::byte* source = raw.data + b * raw_unit_bytes(raw.type);
        std::byte* block = panel + b * panel_block_bytes(out.format);
        for (std::size_t g = 0; g < groups; ++g) {
            std::uint32_t four;
            std::memcpy(&four, source + parts.quants_at() + 4 * g, 4);
            four ^= flip;
            std::memcpy(block + g * 64 + lane * 4, &four, 4);
        }
        std::byte* scales = block + groups * 64;
        for (std::size_t i = 0; i < parts.halves; ++i, scales += 2 * panel_rows) {
            std::memcpy(scales + lane * 2, source + 2 * i, 2);
            finite = finite && std::isfinite(read_half(source + 2 * i));
        }
        for (std::size_t i = 0; i < parts.bytes; ++i, scales += panel_rows)
            scales[lane] = source[2 * parts.halves + i];
    }
    return finite;
}

// Row `lane` of a panel of 16-bit floats, which stay as they are. Whether they are finite is seen
// from their exponents: to widen them for that would take as long as the rest.
bool pack_word_row(const RawRow& raw, std::size_t lane, const PackedMatrix& out, std::byte* panel) {
    const std::uint16_t exponent = out.format == PanelFormat::f16 ? 0x7C00 : 0x7F80;
    bool finite = true;
    for (std::size_t k = 0; k < out.columns; ++k) {
        const std::uint16_t word = read_u16(raw.data + 2 * k);
        std::memcpy(panel + (k * panel_rows + lane) * 2, &word, 2);
        finite &= (word & exponent) != exponent;
    }
    return finite;
}

bool pack_float_row(const RawRow& raw, std::size_t lane, const PackedMatrix& out, std::byte* panel,
                    std::vector<float>& row) {
    row.resize(out.columns);
    dequantize_row(raw.type, raw.data, out.columns, row.data());
    auto* values = reinterpret_cast<float*>(panel);
    bool finite = true;
    for (std::size_t k = 0; k < out.columns; ++k) {
        values[k * panel_rows + lane] = row[k];
        finite = finite && std::isfinite(row[k]);
    }
    return finite;
}

// A row of zeros.
void clear_lane(std::size_t lane, const PackedMatrix& out, std::byte* panel) {
    const std::size_t block_bytes = panel_block_bytes(out.format);
    if (is_float(out.format)) {
        const std::size_t bytes = block_bytes / panel_rows;
        for (std::size_t k = 0; k < out.columns; ++k)
            std::memset(panel + k * block_bytes + lane * bytes, 0, bytes);
        return;
    }
    const std::size_t quants = quant_bytes(out.format);
    for (std::size_t b = 0; b < out.columns / block_columns; ++b) {
        std::byte* block = panel + b * block_bytes;
        for (std::size_t g = 0; g < quants; g += 64)
            std::memset(block + g + lane * 4, 0, 4);
        std::byte* scales = block + quants;
        const std::size_t halves = has_minimum(out.format) ? 2 : 1;
        for (std::size_t i = 0; i < halves; ++i, scales += 2 * panel_rows)
            std::memset(scales + lane * 2, 0, 2);
        for (; scales != block + block_bytes; scales += panel_rows)
            scales[lane] = std::byte{0};
    }
}

}  // namespace

std::size_t raw_row_bytes(WeightType type, std::size_t columns) {
    if (!is_block_type(type)) return columns * raw_unit_bytes(type);
    TROUPE_ASSERT(columns % block_columns == 0);
    return columns / block_columns * raw_unit_bytes(type);
}

void dequantize_row(WeightType type, const std::byte* raw, std::size_t columns, float* out) {
    if (type == WeightType::f32) {
        std::memcpy(out, raw, columns * sizeof(float));
        return;
    }
    if (!is_block_type(type)) {
        const auto widen = type == WeightType::f16 ? half_to_float : bfloat16_to_float;
        for (std::size_t k = 0; k < columns; ++k)
            out[k] = widen(read_u16(raw + 2 * k));
        return;
    }
    const std::size_t unit = raw_unit_bytes(type);
    for (std::size_t b = 0; b < columns / block_columns; ++b) {
        dequantize_block(type, raw + b * unit, out + b * block_columns);
    }
}

std::size_t PackedMatrix::panel_bytes() const {
    const std::size_t units = is_float(format) ? columns : columns / block_columns;
    return units * panel_block_bytes(format);
}

std::size_t packed_bytes(PanelFormat format, std::size_t rows, std::size_t columns) {
    TROUPE_ASSERT(is_float(format) || columns % block_columns == 0);
    const PackedMatrix matrix{format, rows, columns, nullptr};
    return (matrix.panels() * matrix.panel_bytes() + 63) / 64 * 64;
}

PanelFormat native_panel_format(WeightType type) {
    switch (type) {
        case WeightType::f32:
            return PanelFormat::f32;
        case WeightType::f16:
            return PanelFormat::f16;
        case WeightType::bf16:
            return PanelFormat::bf16;
        case WeightType::q4_0:
            return PanelFormat::q4_0;
        case WeightType::q4_1:
            return PanelFormat::q4_1;
        case WeightType::q8_0:
            return PanelFormat::q8_0;
        case WeightType::q4_k:
            return PanelFormat::q4_k;
        case WeightType::q5_k:
            return PanelFormat::q5_k;
        case WeightType::q6_k:
            return PanelFormat::q6_k;
    }
    return PanelFormat::f32;
}

Result<> pack_panels(std::span<const RawMatrix> parts, std::size_t panel_begin,
                     std::size_t panel_end, const PackedMatrix& out) {
    std::size_t rows = 0;
    for (const RawMatrix& part : parts) {
        rows += part.rows;
        TROUPE_ASSERT(part.columns == out.columns);
        TROUPE_ASSERT(out.format == PanelFormat::f32 ||
                      out.format == native_panel_format(part.type));
    }
    TROUPE_ASSERT(rows == out.rows && panel_end <= out.panels());
    std::vector<float> values;
    for (std::size_t p = panel_begin; p < panel_end; ++p) {
        std::byte* panel = out.data + p * out.panel_bytes();
        for (std::size_t lane = 0; lane < panel_rows; ++lane) {
            const RawRow raw = find_row(parts, p * panel_rows + lane);
            if (raw.data == nullptr) {
                clear_lane(lane, out, panel);
                continue;
            }
            const bool finite = out.format == PanelFormat::f32
                                    ? pack_float_row(raw, lane, out, panel, values)
                                : is_float(out.format) ? pack_word_row(raw, lane, out, panel)
                                                       : pack_block_row(raw, lane, out, panel);
            if (!finite) {
                return invalid_input("weight row " + std::to_string(p * panel_rows + lane) +
                                     " holds a value that is not finite");
            }
        }
    }
    return {};
}

}  // namespace troupe::cpu
