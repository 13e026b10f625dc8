#include "model/superblocks.hpp"

#include <bit>
#include <cstring>

namespace troupe::model {
namespace {

// `count` bits of byte `index` from bit `shift` on.
std::int8_t bits(const std::byte* bytes, std::size_t index, std::size_t shift, unsigned count) {
    return static_cast<std::int8_t>((std::to_integer<unsigned>(bytes[index]) >> shift) &
                                    ((1U << count) - 1));
}

std::int8_t joined(std::int8_t low, std::int8_t high, unsigned low_bits) {
    return static_cast<std::int8_t>(low | (high << low_bits));
}

std::int8_t minus(std::int8_t value, int offset) {
    return static_cast<std::int8_t>(value - offset);
}

// The 2-bit quants of Q2_K and Q3_K: 32 bytes hold values j, j + 32, j + 64 and j + 96.
std::int8_t two_bits(const std::byte* quants, std::size_t j) {
    return bits(quants, j / 128 * 32 + j % 32, j % 128 / 32 * 2, 2);
}

// The 4-bit quants of Q4_K and Q5_K: 32 bytes hold values j and j + 32.
std::int8_t four_bits(const std::byte* quants, std::size_t j) {
    return bits(quants, j / 64 * 32 + j % 32, j % 64 / 32 * 4, 4);
}

// The 12 bytes of Q4_K and Q5_K: eight scales and eight minima of 6 bits. The first four of each
// are the low bits of a byte; the others have their low nibbles in the last four bytes and their
// high pairs on top of the first eight.
void read_scales_and_minima(const std::byte* bytes, Superblock& out) {
    for (std::size_t i = 0; i < 4; ++i) {
        out.scales[i] = bits(bytes, i, 0, 6);
        out.minima[i] = bits(bytes, 4 + i, 0, 6);
        out.scales[4 + i] = joined(bits(bytes, 8 + i, 0, 4), bits(bytes, i, 6, 2), 4);
        out.minima[4 + i] = joined(bits(bytes, 8 + i, 4, 4), bits(bytes, 4 + i, 6, 2), 4);
    }
}

}  // namespace

// 16 bytes of scales (low nibbles) and minima, 64 of quants, halves d and minimum.
Superblock read_q2_k(const std::byte* block) {
    Superblock out;
    out.group = 16;
    out.d = load_u16(block + 80);
    out.minimum = load_u16(block + 82);
    for (std::size_t i = 0; i < 16; ++i) {
        out.scales[i] = bits(block, i, 0, 4);
        out.minima[i] = bits(block, i, 4, 4);
    }
    for (std::size_t j = 0; j < kSuperblock; ++j)
        out.quants[j] = two_bits(block + 16, j);
    return out;
}

// 32 bytes of third bits (clear: minus 4), 64 of quants, 12 of scales, half d.
Superblock read_q3_k(const std::byte* block) {
    Superblock out;
    out.group = 16;
    out.d = load_u16(block + 108);
    const std::byte* scales = block + 96;
    for (std::size_t i = 0; i < 16; ++i) {
        const std::int8_t low = bits(scales, i % 8, i / 8 * 4, 4);
        out.scales[i] = minus(joined(low, bits(scales, 8 + i % 4, i / 4 * 2, 2), 4), 32);
    }
    for (std::size_t j = 0; j < kSuperblock; ++j) {
        const bool third = bits(block, j % 32, j / 32, 1) != 0;
        out.quants[j] = minus(two_bits(block + 32, j), third ? 0 : 4);
    }
    return out;
}

// Halves d and minimum, 12 bytes of scales and minima, 128 of quants.
Superblock read_q4_k(const std::byte* block) {
    Superblock out;
    out.group = 32;
    out.d = load_u16(block);
    out.minimum = load_u16(block + 2);
    read_scales_and_minima(block + 4, out);
    for (std::size_t j = 0; j < kSuperblock; ++j)
        out.quants[j] = four_bits(block + 16, j);
    return out;
}

// As Q4_K, with 32 bytes of fifth bits before the quants.
Superblock read_q5_k(const std::byte* block) {
    Superblock out;
    out.group = 32;
    out.d = load_u16(block);
    out.minimum = load_u16(block + 2);
    read_scales_and_minima(block + 4, out);
    for (std::size_t j = 0; j < kSuperblock; ++j) {
        out.quants[j] = joined(four_bits(block + 48, j), bits(block + 16, j % 32, j / 32, 1), 4);
    }
    return out;
}

// 128 bytes of low nibbles (64 hold values j and j + 64), 64 of high pairs, 16 scales, half d.
Superblock read_q6_k(const std::byte* block) {
    Superblock out;
    out.group = 16;
    out.d = load_u16(block + 208);
    std::memcpy(out.scales.data(), block + 192, 16);
    for (std::size_t j = 0; j < kSuperblock; ++j) {
        const std::int8_t low = bits(block, j / 128 * 64 + j % 64, j % 128 / 64 * 4, 4);
        const std::int8_t high = bits(block + 128, j / 128 * 32 + j % 32, j % 128 / 32 * 2, 2);
        out.quants[j] = minus(joined(low, high, 4), 32);
    }
    return out;
}

// Half d, 16 bits of high pairs of scales, 4 bytes of their low nibbles, 128 bytes of quants of
// which 16 hold values j and j + 16.
Superblock read_iq4_xs(const std::byte* block) {
    Superblock out;
    out.group = 32;
    out.d = load_u16(block);
    for (std::size_t i = 0; i < 8; ++i) {
        const std::int8_t low = bits(block + 4, i / 2, i % 2 * 4, 4);
        out.scales[i] = minus(joined(low, bits(block + 2, i / 4, i % 4 * 2, 2), 4), 32);
    }
    for (std::size_t j = 0; j < kSuperblock; ++j) {
        const std::int8_t q = bits(block + 8, j / 32 * 16 + j % 16, j % 32 / 16 * 4, 4);
        out.quants[j] = kIq4Values[static_cast<std::size_t>(q)];
    }
    return out;
}

float mxfp4_half_scale(std::uint8_t exponent) {
    const std::uint32_t number = exponent;
    return std::bit_cast<float>(number < 2 ? 0x00200000U << number : (number - 1) << 23);
}

}  // namespace troupe::model
