// The block formats of GGUF beyond the plain 4-, 5- and 8-bit ones, block by block: the K formats
// (superblocks of 256 values whose 8 or 16 groups have scales of 4 to 8 bits), and those whose
// quants look up a value. Pure functions, for dequantise() and for who repacks weights.
// Layouts: ggml/src/ggml-common.h and ggml-quants.c of the ggml project.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace troupe::model {

inline constexpr std::size_t kSuperblock = 256;

// What the 4-bit quants of IQ4_NL and IQ4_XS stand for, and those of MXFP4 (twice the value).
inline constexpr std::array<std::int8_t, 16> kIq4Values{-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::array<std::int8_t, 16> kMxfp4Values{0, 1,  2,  3,  4,  6,  8,  12,
                                                          0, -1, -2, -3, -4, -6, -8, -12};

// A superblock taken apart; the value of quant j is
//   d * scales[j / group] * quants[j] - minimum * minima[j / group]
// with `minimum` 0 where the format has none. d and minimum are halves, as their bits.
struct Superblock {
    std::uint16_t d = 0;
    std::uint16_t minimum = 0;
    std::size_t group = 0;                 // 16 or 32 values
    std::array<std::int8_t, 16> scales{};  // kSuperblock / group of them
    std::array<std::int8_t, 16> minima{};
    std::array<std::int8_t, kSuperblock> quants{};
};

[[nodiscard]] Superblock read_q2_k(const std::byte* block);
[[nodiscard]] Superblock read_q3_k(const std::byte* block);
[[nodiscard]] Superblock read_q4_k(const std::byte* block);
[[nodiscard]] Superblock read_q5_k(const std::byte* block);
[[nodiscard]] Superblock read_q6_k(const std::byte* block);
[[nodiscard]] Superblock read_iq4_xs(const std::byte* block);

// From any address.
[[nodiscard]] inline std::uint16_t load_u16(const std::byte* at) {
    std::uint16_t value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

// Half the power of two that MXFP4's byte of exponent stands for: 2^(exponent - 128).
[[nodiscard]] float mxfp4_half_scale(std::uint8_t exponent);

}  // namespace troupe::model
