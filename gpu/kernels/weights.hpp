// How weights lie in device memory: rows padded with zeros to whole groups of 32 columns, each type
// cut so that eight consecutive columns are one load of a thread, and a warp's loads touch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::gpu {

enum class WeightType : std::uint32_t { f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q5_k, q6_k };

[[nodiscard]] constexpr bool is_k_type(WeightType type) {
    return type >= WeightType::q4_k;
}

inline constexpr std::uint32_t kGroupColumns = 32;  // share a scale where the type has one
inline constexpr std::uint32_t kLoadColumns = 8;    // what a thread expands at once
// Of the K types eight groups have in common: d, the minimum, and a word for each group.
inline constexpr std::uint32_t kSuperblockScales = 10;

[[nodiscard]] constexpr std::uint32_t padded_columns(std::uint32_t columns) {
    return (columns + kGroupColumns - 1) / kGroupColumns * kGroupColumns;
}

// Bytes of kLoadColumns elements: 8 floats, 8 halves, 8 signed bytes, 8 nibbles (lowest first).
[[nodiscard]] constexpr std::size_t load_bytes(WeightType type) {
    switch (type) {
        case WeightType::f32:
            return 32;
        case WeightType::f16:
        case WeightType::bf16:
            return 16;
        case WeightType::q8_0:
            return 8;
        case WeightType::q4_0:
        case WeightType::q4_1:
        case WeightType::q4_k:
        case WeightType::q5_k:
        case WeightType::q6_k:
            return 4;
    }
    return 0;
}

// Bytes of a group's bits above the fourth: of q5_k one a column, of q6_k two.
[[nodiscard]] constexpr std::size_t high_bytes(WeightType type) {
    return type == WeightType::q5_k ? 4 : type == WeightType::q6_k ? 8 : 0;
}

// 16-bit floats for each group: none; the scale d; d and the minimum m. The K types have
// kSuperblockScales for eight groups instead.
[[nodiscard]] constexpr std::uint32_t scales_per_group(WeightType type) {
    switch (type) {
        case WeightType::q8_0:
        case WeightType::q4_0:
            return 1;
        case WeightType::q4_1:
            return 2;
        default:
            return 0;
    }
}

// A matrix for y = W x. Element (r, c) of the types without scales is data[r * columns + c]; of the
// others d * q (q8_0), d * (q - 8) (q4_0), d * q + m (q4_1), and with the group's factors s and t
// d * s * q - m * t (q4_k, q5_k), d * s * (q - 32) (q6_k), rounded to float32 once.
struct WeightMatrix {
    WeightType type = WeightType::f32;
    std::uint32_t rows = 0;
    std::uint32_t columns = 0;              // padded; the columns beyond the model's hold zeros
    const void* data = nullptr;             // [rows][columns / 8] loads
    const std::uint16_t* scales = nullptr;  // [rows][columns / 32][scales_per_group]
    const void* high = nullptr;             // [rows][columns / 32] of high_bytes(), lowest first
};

[[nodiscard]] constexpr std::size_t scales_of_row(WeightType type, std::uint32_t columns) {
    return is_k_type(type) ? columns / kGroupColumns / 8 * kSuperblockScales
                           : columns / kGroupColumns * scales_per_group(type);
}

}  // namespace troupe::gpu
