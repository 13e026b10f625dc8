// 16-bit floats in plain code, the same bits as the processor's own conversions (F16C).
#pragma once

#include <bit>
#include <cstdint>

namespace troupe::cpu {

// IEEE binary16 to float32, exact; a NaN stays a NaN.
inline float half_to_float(std::uint16_t half) {
    const std::uint32_t sign = std::uint32_t{half & 0x8000U} << 16;
    const std::uint32_t magnitude = half & 0x7FFFU;
    if (magnitude >= 0x7C00U) {  // infinite or NaN
        const std::uint32_t quiet = magnitude > 0x7C00U ? 0x00400000U : 0U;
        return std::bit_cast<float>(sign | 0x7F800000U | quiet | ((magnitude & 0x3FFU) << 13));
    }
    if (magnitude >= 0x0400U) {
        return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000U));
    }
    const float value = static_cast<float>(magnitude) * 0x1p-24F;  // subnormal, exact
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
}

// float32 to IEEE binary16, rounded to nearest even; too large becomes infinite.
inline std::uint16_t float_to_half(float value) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
    std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) {  // NaN, made quiet
        return static_cast<std::uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
    }
    if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);
    if (magnitude < 0x38800000U) {  // subnormal: adding 0.5 aligns the bits and rounds them
        const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
        return static_cast<std::uint16_t>(
            sign | ((std::bit_cast<std::uint32_t>(aligned) - 0x3F000000U) & 0xFFFFU));
    }
    magnitude += 0x0FFFU + ((magnitude >> 13) & 1U);
    return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U) >> 13));
}

inline float bfloat16_to_float(std::uint16_t value) {
    return std::bit_cast<float>(std::uint32_t{value} << 16);
}

}  // namespace troupe::cpu
