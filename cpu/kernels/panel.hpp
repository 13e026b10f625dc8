// The layout of packed weights. Standard headers only, like everything that the files of an
// instruction set include: an inline function of a library, compiled there with that set's flags,
// could be the copy that the linker keeps for the whole program.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::cpu {

inline constexpr std::size_t panel_rows = 16;
inline constexpr std::size_t block_columns = 32;

// What a panel holds per block of 32 columns (f32: per column), block after block:
//   q4_1  256 bytes of quants, f16 d[16], f16 m[16]                  320 bytes
//   q4_0  256 bytes of quants, f16 d[16]                             288 bytes
//   q8_0  512 bytes of quants (+128, unsigned), f16 d[16]            544 bytes
//   q4_k  256 bytes of quants, f16 d[16], f16 m[16], int8 scale[16], int8 minimum[16]  352 bytes
//   q5_k  512 bytes of quants (unsigned), and as q4_k                608 bytes
//   q6_k  512 bytes of quants (+128, unsigned), f16 d[16], int8 scale[16] of the first 16 columns,
//         int8 scale[16] of the others                               576 bytes
//   f32, f16, bf16   w[16]                      64, 32 and 32 bytes a column
// Quants are groups of [16 rows][4 columns] bytes, group g = columns 4g .. 4g + 3. The 4-bit forms
// keep groups g (low nibbles) and g + 4 (high nibbles) in the same 64 bytes, g = 0..3.
// Missing rows of the last panel are zero.
enum class PanelFormat : std::uint8_t { q4_1, q4_0, q8_0, q4_k, q5_k, q6_k, f32, f16, bf16 };

// Float panels are multiplied by float activations, the others by int8 blocks.
[[nodiscard, gnu::always_inline]] constexpr bool is_float(PanelFormat format) {
    return format == PanelFormat::f32 || format == PanelFormat::f16 || format == PanelFormat::bf16;
}

// Bytes of quants in one block of a quantised panel.
[[nodiscard, gnu::always_inline]] constexpr std::size_t quant_bytes(PanelFormat format) {
    return format == PanelFormat::q4_1 || format == PanelFormat::q4_0 || format == PanelFormat::q4_k
               ? 256
               : 512;
}

// Whether weights have a minimum that is added to d * quant.
[[nodiscard, gnu::always_inline]] constexpr bool has_minimum(PanelFormat format) {
    return format == PanelFormat::q4_1 || format == PanelFormat::q4_k ||
           format == PanelFormat::q5_k;
}

// What is taken off a quant as it lies in the panel.
[[nodiscard, gnu::always_inline]] constexpr int quant_offset(PanelFormat format) {
    if (has_minimum(format)) return 0;
    return format == PanelFormat::q4_0 ? 8 : 128;
}

// How many times larger than all others of its block an activation must be to be kept apart (see
// ActivationBlock); powers of two. The lower, the less noise and the slower the product.
inline constexpr float usual_outlier_ratio = 2.0F;
inline constexpr float coarse_outlier_ratio = 4.0F;

// A packed matrix; the memory is the caller's (one large buffer for all of a model keeps it in huge
// pages), 64-byte aligned, packed_bytes() long.
struct PackedMatrix {
    PanelFormat format = PanelFormat::f32;
    std::size_t rows = 0;
    std::size_t columns = 0;
    std::byte* data = nullptr;
    float outlier_ratio = usual_outlier_ratio;  // of the activations it is multiplied by

    [[nodiscard, gnu::always_inline]] std::size_t panels() const {
        return (rows + panel_rows - 1) / panel_rows;
    }
    [[nodiscard]] std::size_t panel_bytes() const;
    [[nodiscard, gnu::always_inline]] const std::byte* panel(std::size_t index) const {
        return data + index * panel_bytes();
    }
};

// Bytes of one block of a panel (f32: of one column).
[[nodiscard]] constexpr std::size_t panel_block_bytes(PanelFormat format) {
    switch (format) {
        case PanelFormat::q4_1:
            return 320;
        case PanelFormat::q4_0:
            return 288;
        case PanelFormat::q8_0:
            return 544;
        case PanelFormat::q4_k:
            return 352;
        case PanelFormat::q5_k:
            return 608;
        case PanelFormat::q6_k:
            return 576;
        case PanelFormat::f32:
            return 64;
        case PanelFormat::f16:
        case PanelFormat::bf16:
            return 32;
    }
    return 0;
}

// Asks for what lies some way behind `at`. Weights are read once from end to end, but a processor's
// own prefetching stops at the end of each 4 KiB, in huge pages, too.
[[gnu::always_inline]] inline void prefetch_ahead(const std::byte* at, std::size_t bytes) {
    constexpr std::size_t distance = 6144;
    for (std::size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + distance + i, 0, 2);  // into the second cache: much is on its way
}

}  // namespace troupe::cpu
