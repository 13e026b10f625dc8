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
    }
    return 0;
}

bool is_block_type(WeightType type) {
    return type == WeightType::q4_0 || type == WeightType::q4_1 || type == WeightType::q8_0;
}

void dequantize_nibbles(const std::byte* quants, float d, float offset, float m, float* out) {
    for (std::size_t j = 0; j < 16; ++j) {
        const auto byte = static_cast<unsigned>(quants[j]);
        // The products are exact, so the sum is rounded once.
        out[j] = d * (static_cast<float>(byte & 15U) - offset) + m;
        out[j + 16] = d * (static_cast<float>(byte >> 4) - offset) + m;
    }
}

void dequantize_block(WeightType type, const std::byte* raw, float* out) {
    const float d = read_half(raw);
    switch (type) {
        case WeightType::q4_0:
            return dequantize_nibbles(raw + 2, d, 8.0F, 0.0F, out);
        case WeightType::q4_1:
            return dequantize_nibbles(raw + 4, d, 0.0F, read_half(raw + 2), out);
        default:
            break;
    }
    for (std::size_t j = 0; j < block_columns; ++j) {
        out[j] = d * static_cast<float>(static_cast<std::int8_t>(raw[2 + j]));
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
    const std::size_t raw_bytes = raw_unit_bytes(raw.type);
    const std::size_t block_bytes = panel_block_bytes(out.format);
    const bool bytes_wide = out.format == PanelFormat::q8_0;
    const bool has_minimum = out.format == PanelFormat::q4_1;
    const std::size_t groups = bytes_wide ? 8 : 4;
    const std::size_t quants_at = has_minimum ? 4 : 2;
    for (std::size_t b = 0; b < out.columns / block_columns; ++b) {
        const std::byte* source = raw.data + b * raw_bytes;
        std::byte* block = panel + b * block_bytes;
        std::byte* scales = block + groups * 64 + lane * 2;
        for (std::size_t g = 0; g < groups; ++g) {
            std::uint32_t four;
            std::memcpy(&four, source + quants_at + 4 * g, 4);
            if (bytes_wide) four ^= 0x80808080U;
            std::memcpy(block + g * 64 + lane * 4, &four, 4);
        }
        std::memcpy(scales, source, 2);
        bool finite = std::isfinite(read_half(source));
        if (has_minimum) {
            std::memcpy(scales + 32, source + 2, 2);
            finite = finite && std::isfinite(read_half(source + 2));
        }
        if (!finite) return false;
    }
    return true;
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

// A row of zeros, in the quantised forms with the quants that mean zero.
void clear_lane(std::size_t lane, const PackedMatrix& out, std::byte* panel) {
    const std::size_t block_bytes = panel_block_bytes(out.format);
    const bool is_float = out.format == PanelFormat::f32;
    const std::size_t units = is_float ? out.columns : out.columns / block_columns;
    const std::size_t groups = is_float ? 1 : out.format == PanelFormat::q8_0 ? 8 : 4;
    for (std::size_t u = 0; u < units; ++u) {
        std::byte* unit = panel + u * block_bytes;
        for (std::size_t g = 0; g < groups; ++g)
            std::memset(unit + g * 64 + lane * 4, 0, 4);
        if (is_float) continue;
        std::memset(unit + groups * 64 + lane * 2, 0, 2);
        if (out.format == PanelFormat::q4_1) std::memset(unit + groups * 64 + 32 + lane * 2, 0, 2);
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
    const std::size_t units = format == PanelFormat::f32 ? columns : columns / block_columns;
    return units * panel_block_bytes(format);
}

std::size_t packed_bytes(PanelFormat format, std::size_t rows, std::size_t columns) {
    TROUPE_ASSERT(format == PanelFormat::f32 || columns % block_columns == 0);
    const PackedMatrix matrix{format, rows, columns, nullptr};
    return (matrix.panels() * matrix.panel_bytes() + 63) / 64 * 64;
}

PanelFormat native_panel_format(WeightType type) {
    switch (type) {
        case WeightType::q4_0:
            return PanelFormat::q4_0;
        case WeightType::q4_1:
            return PanelFormat::q4_1;
        case WeightType::q8_0:
            return PanelFormat::q8_0;
        default:
            return PanelFormat::f32;
    }
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
