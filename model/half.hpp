// Conversions between float32 and the 16-bit formats, exact and the same on every machine: IEEE
// binary16 (half) and bfloat16, to nearest with ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace troupe::model {

// Exact, subnormals, infinities and NaN payloads included.
[[nodiscard]] constexpr float half_to_float(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000U) << 16;
    const std::uint32_t exponent = (half >> 10) & 0x1FU;
    const std::uint32_t fraction = half & 0x3FFU;
    if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13));
    if (exponent != 0) {
        return std::bit_cast<float>(sign | ((exponent + 127 - 15) << 23) | (fraction << 13));
    }
    // Zero or subnormal: fraction * 2^-24, which float32 holds exactly.
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

// To nearest, ties to even; overflow gives infinity, a NaN stays one (made quiet).
[[nodiscard]] constexpr std::uint16_t float_to_half(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) {
        return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
    }
    if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);  // >= 65520
    if (magnitude < 0x38800000U) {  // below 2^-14: subnormal or zero
        if (magnitude < 0x33000000U) return static_cast<std::uint16_t>(sign);  // < 2^-25
        const std::uint32_t exponent = magnitude >> 23;                        // 102 .. 112
        const std::uint32_t fraction = (magnitude & 0x7FFFFFU) | 0x800000U;
        const std::uint32_t shift = 126 - exponent;  // 14 .. 24
        const std::uint32_t half = std::uint32_t{1} << (shift - 1);
        const std::uint32_t rest = fraction & ((half << 1) - 1);
        const std::uint32_t kept = fraction >> shift;
        const std::uint32_t up = rest > half || (rest == half && (kept & 1U) != 0) ? 1 : 0;
        return static_cast<std::uint16_t>(sign | (kept + up));
    }
    // The rounding carry may run into the exponent, which is what rounding up a power of two needs.
    const std::uint32_t rounded = magnitude - (112U << 23) + 0xFFFU + ((magnitude >> 13) & 1U);
    return static_cast<std::uint16_t>(sign | (rounded >> 13));
}

[[nodiscard]] constexpr float bfloat16_to_float(std::uint16_t value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

[[nodiscard]] constexpr std::uint16_t float_to_bfloat16(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
    return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace troupe::model
