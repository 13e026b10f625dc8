// The project's own exp, log, sin and cos. The C library picks variants by processor and their last
// bits differ; these are one fixed sequence of IEEE operations (no fused multiply-add, no table, no
// branch), so that every machine and every vector width gives the same bits. Loops over them
// vectorise. The stated errors are what tests/model/test_math.cpp measures.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace troupe::model::math {

// The rounding constants 1.5 * 2^23 and 1.5 * 2^52: adding one rounds a small number to an integer
// (to nearest, ties to even), which then stands in the low bits of the sum.
inline constexpr float kRoundF32 = 12582912.0F;
inline constexpr double kRoundF64 = 6755399441055744.0;

// e^x for float, within 1.1 ulp; subnormal results included, 0 below -104, infinity above 88.73.
// x = n ln 2 + r with |r| <= ln 2 / 2, and the Taylor polynomial of degree 7 in r.
[[nodiscard, gnu::always_inline]] constexpr float exp(float x) {
    constexpr float kLog2E = 1.44269504F;
    constexpr float kLn2High = 0.693359375F;  // 10 bits: n * kLn2High is exact
    constexpr float kLn2Low = -2.12194440e-4F;
    x = x < -104.0F ? -104.0F : x;
    x = x > 89.0F ? 89.0F : x;
    const float shifted = x * kLog2E + kRoundF32;
    const float n = shifted - kRoundF32;
    const std::int32_t exponent =
        std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRoundF32);
    const float r = (x - n * kLn2High) - n * kLn2Low;
    float p = 1.0F / 5040;
    p = p * r + 1.0F / 720;
    p = p * r + 1.0F / 120;
    p = p * r + 1.0F / 24;
    p = p * r + 1.0F / 6;
    p = p * r + 0.5F;
    p = p * r * r + r + 1.0F;
    // 2^n in two factors, because 2^-150 and 2^128 are no normal floats.
    const std::int32_t half = exponent >> 1;
    const float scale_a = std::bit_cast<float>((half + 127) << 23);
    const float scale_b = std::bit_cast<float>((exponent - half + 127) << 23);
    return p * scale_a * scale_b;
}

// e^x for double, within 1.5 ulp; subnormal results included, 0 below -746, infinity above 709.79.
[[nodiscard, gnu::always_inline]] constexpr double exp(double x) {
    constexpr double kLog2E = 1.4426950408889634;
    constexpr double kLn2High = 6.93147180369123816490e-01;  // 33 bits
    constexpr double kLn2Low = 1.90821492927058770002e-10;
    x = x < -746.0 ? -746.0 : x;
    x = x > 710.0 ? 710.0 : x;
    const double shifted = x * kLog2E + kRoundF64;
    const double n = shifted - kRoundF64;
    const std::int64_t exponent =
        std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(kRoundF64);
    const double r = (x - n * kLn2High) - n * kLn2Low;
    double p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r * r + r + 1.0;
    const std::int64_t half = exponent >> 1;
    const double scale_a = std::bit_cast<double>((half + 1023) << 52);
    const double scale_b = std::bit_cast<double>((exponent - half + 1023) << 52);
    return p * scale_a * scale_b;
}

// Natural logarithm, within 3 ulp; subnormals included, log(0) = -infinity, NaN below 0.
// x = 2^e m with m in [sqrt(1/2), sqrt(2)), and log m = 2 atanh(s), s = (m - 1) / (m + 1), as a
// series.
[[nodiscard, gnu::always_inline]] constexpr double log(double x) {
    constexpr double kLn2High = 6.93147180369123816490e-01;
    constexpr double kLn2Low = 1.90821492927058770002e-10;
    constexpr std::uint64_t kSqrtHalfBits = 0x3FE6A09E667F3BCD;
    const bool subnormal = x < std::numeric_limits<double>::min();
    const double scaled = subnormal ? x * 0x1p54 : x;
    const auto bits = std::bit_cast<std::uint64_t>(scaled);  // unsigned: -0 must not overflow
    const std::int64_t e = static_cast<std::int64_t>(bits - kSqrtHalfBits) >> 52;
    const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(e) << 52));
    const double exponent = static_cast<double>(e - (subnormal ? 54 : 0));
    const double f = m - 1.0;
    const double s = f / (2.0 + f);
    const double q = s * s;
    double p = 2.0 / 21;
    p = p * q + 2.0 / 19;
    p = p * q + 2.0 / 17;
    p = p * q + 2.0 / 15;
    p = p * q + 2.0 / 13;
    p = p * q + 2.0 / 11;
    p = p * q + 2.0 / 9;
    p = p * q + 2.0 / 7;
    p = p * q + 2.0 / 5;
    p = p * q + 2.0 / 3;
    // log m = 2s + s q p, and 2s = f - s f: f is exact, which keeps the error small near 1.
    double result = exponent * kLn2High + (f - (s * (f - q * p) - exponent * kLn2Low));
    result = x == 0 ? -std::numeric_limits<double>::infinity() : result;
    result = x < 0 ? std::numeric_limits<double>::quiet_NaN() : result;
    return x <= std::numeric_limits<double>::max() ? result : x + x;  // infinity and NaN
}

// Rounded from double: within 0.51 ulp.
[[nodiscard, gnu::always_inline]] constexpr float log(float x) {
    return static_cast<float>(log(static_cast<double>(x)));
}

namespace detail {

// x = quarter * pi/2 + r with |r| <= pi/4; pi/2 in three parts of 33 bits.
struct Reduced {
    double r;
    std::int64_t quarter;
};

[[nodiscard, gnu::always_inline]] constexpr Reduced reduce(double x) {
    constexpr double kTwoOverPi = 0.63661977236758134;
    constexpr double kHalfPi1 = 1.57079632673412561417e+00;
    constexpr double kHalfPi2 = 6.07710050630396597660e-11;
    constexpr double kHalfPi3 = 2.02226624879595063154e-21;
    const double shifted = x * kTwoOverPi + kRoundF64;
    const double n = shifted - kRoundF64;
    const std::int64_t quarter =
        std::bit_cast<std::int64_t>(shifted) - std::bit_cast<std::int64_t>(kRoundF64);
    return {((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3, quarter};
}

// Taylor polynomials, |r| <= pi/4.
[[nodiscard, gnu::always_inline]] constexpr double sin_poly(double r) {
    const double q = r * r;
    double p = 1.0 / 355687428096000;
    p = p * q - 1.0 / 1307674368000;
    p = p * q + 1.0 / 6227020800;
    p = p * q - 1.0 / 39916800;
    p = p * q + 1.0 / 362880;
    p = p * q - 1.0 / 5040;
    p = p * q + 1.0 / 120;
    p = p * q - 1.0 / 6;
    return p * q * r + r;
}

[[nodiscard, gnu::always_inline]] constexpr double cos_poly(double r) {
    const double q = r * r;
    double p = 1.0 / 20922789888000;
    p = p * q - 1.0 / 87178291200;
    p = p * q + 1.0 / 479001600;
    p = p * q - 1.0 / 3628800;
    p = p * q + 1.0 / 40320;
    p = p * q - 1.0 / 720;
    p = p * q + 1.0 / 24;
    p = p * q - 0.5;
    return p * q + 1.0;
}

}  // namespace detail

// Sine and cosine of x radians, |x| <= 2^20: within 3e-16 absolute.
[[nodiscard, gnu::always_inline]] constexpr double sin(double x) {
    const auto [r, quarter] = detail::reduce(x);
    const double value = (quarter & 1) != 0 ? detail::cos_poly(r) : detail::sin_poly(r);
    return (quarter & 2) != 0 ? -value : value;
}

[[nodiscard, gnu::always_inline]] constexpr double cos(double x) {
    const auto [r, quarter] = detail::reduce(x);
    const double value = (quarter & 1) != 0 ? detail::sin_poly(r) : detail::cos_poly(r);
    return ((quarter + 1) & 2) != 0 ? -value : value;
}

[[nodiscard, gnu::always_inline]] constexpr float sin(float x) {
    return static_cast<float>(sin(static_cast<double>(x)));
}

[[nodiscard, gnu::always_inline]] constexpr float cos(float x) {
    return static_cast<float>(cos(static_cast<double>(x)));
}

}  // namespace troupe::model::math
