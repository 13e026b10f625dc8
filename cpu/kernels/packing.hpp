// Weights as the kernels read them: panels of 16 output rows, repacked once at load. One layout for
// every instruction set and for any number of tokens. Plain functions; different panels of one
// matrix may be packed by different threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cpu/kernels/panel.hpp"
#include "runtime/base/result.hpp"

namespace troupe::cpu {

// Element types that can be packed. Blocks have 32 columns; the first three are those of GGUF, the
// others what cpu/weight_blocks.hpp makes of GGUF's superblocks:
//   q4_0  f16 d, 16 bytes        value j = d * (low nibble of byte j - 8), j + 16 = high nibble
//   q4_1  f16 d, f16 m, 16 bytes value j = d * low nibble + m, j + 16 likewise
//   q8_0  f16 d, 32 int8         value = d * q
//   q4_k  f16 d, f16 m, int8 scale, int8 minimum, 16 bytes
//                                value j = d * scale * low nibble - m * minimum, j + 16 likewise
//   q5_k  the same with 32 bytes value = d * scale * q - m * minimum
//   q6_k  f16 d, int8 scale[2], 32 int8             value j = d * scale[j / 16] * q
enum class WeightType : std::uint8_t { f32, f16, bf16, q4_0, q4_1, q8_0, q4_k, q5_k, q6_k };

// Raw bytes of `columns` values as the file stores them. Block formats: a multiple of 32.
[[nodiscard]] std::size_t raw_row_bytes(WeightType type, std::size_t columns);

// Expands one raw row to floats, the formulas above with one rounding.
void dequantize_row(WeightType type, const std::byte* raw, std::size_t columns, float* out);

// Rows of weights in a file's own layout, output rows first; not owned.
struct RawMatrix {
    WeightType type = WeightType::f32;
    std::size_t rows = 0;
    std::size_t columns = 0;
    const std::byte* data = nullptr;  // [rows][raw_row_bytes], any alignment
};

// Bytes of a whole matrix, a multiple of 64.
[[nodiscard]] std::size_t packed_bytes(PanelFormat format, std::size_t rows, std::size_t columns);

// The panel format of the same name.
[[nodiscard]] PanelFormat native_panel_format(WeightType type);

// Packs panels [panel_begin, panel_end) of `out` from matrices stacked on top of each other (so
// that query, key and value, or gate and up, become one product). All parts have out.columns
// columns and either a native format equal to out.format, or out.format is f32 (then values are
// expanded). Error: invalid_input where a scale or a value is not finite.
[[nodiscard]] Result<> pack_panels(std::span<const RawMatrix> parts, std::size_t panel_begin,
                                   std::size_t panel_end, const PackedMatrix& out);

}  // namespace troupe::cpu
