// Elementary functions in double from series, so that no C library decides the last bit. They need
// not be correctly rounded: an error of some 1e-16 * position is far below float32's 6e-8.
#include "cpu/kernels/rope.hpp"

#include <cmath>

#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

constexpr double ln2 = 0.693147180559945309417232121458;

double exponential(double x) {
    const double n = std::nearbyint(x / ln2);
    const double r = x - n * ln2;
    double sum = 1.0;
    for (int k = 18; k >= 1; --k)
        sum = 1.0 + sum * r / k;
    return std::ldexp(sum, static_cast<int>(n));
}

struct CosSin {
    double cos;
    double sin;
};

// pi / 2 in three parts, the first two of 33 bits: n times them is exact for |n| < 2^20, and at
// 2^24 radians (n up to 10.7 million) the rest is still good to 1e-15.
CosSin cos_sin(double angle) {
    constexpr double two_over_pi = 0.636619772367581343075535053490;
    constexpr double part1 = 1.57079632673412561417e+00;
    constexpr double part2 = 6.07710050630396597660e-11;
    constexpr double part3 = 2.02226624879595063154e-21;
    const double n = std::nearbyint(angle * two_over_pi);
    const double r = ((angle - n * part1) - n * part2) - n * part3;
    const double square = r * r;
    double sine = 1.0, cosine = 1.0;
    for (int k = 16; k >= 2; k -= 2) {
        sine = 1.0 - sine * square / (k * (k + 1));
        cosine = 1.0 - cosine * square / (k * (k - 1));
    }
    sine *= r;
    switch (static_cast<long long>(n) & 3) {
        case 0:
            return {cosine, sine};
        case 1:
            return {-sine, cosine};
        case 2:
            return {-cosine, -sine};
        default:
            return {sine, -cosine};
    }
}

}  // namespace

// x = m * 2^e with m in [0.75, 1.5), ln m = 2 artanh((m - 1) / (m + 1)).
double natural_log(double x) {
    int exponent = 0;
    double mantissa = std::frexp(x, &exponent);
    if (mantissa < 0.75) {
        mantissa *= 2.0;
        --exponent;
    }
    const double z = (mantissa - 1.0) / (mantissa + 1.0);
    double sum = 0.0;
    for (int n = 27; n >= 1; n -= 2)
        sum = sum * z * z + 1.0 / n;
    return 2.0 * z * sum + exponent * ln2;
}

std::vector<double> rope_frequencies(std::size_t dimensions, double theta) {
    TROUPE_ASSERT(dimensions % 2 == 0 && theta > 0.0);
    std::vector<double> frequencies(dimensions / 2);
    const double log_theta = natural_log(theta);
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double share = static_cast<double>(2 * i) / static_cast<double>(dimensions);
        frequencies[i] = exponential(-share * log_theta);
    }
    return frequencies;
}

RopeTable::RopeTable(std::span<const double> frequencies, std::size_t positions, double magnitude)
    : pairs_(frequencies.size()), values_(positions * 2 * frequencies.size()) {
    TROUPE_ASSERT(pairs_ > 0 && positions <= std::size_t{1} << 24);
    for (std::size_t position = 0; position < positions; ++position)
        compute(frequencies, magnitude, position, values_.data() + position * 2 * pairs_);
}

void RopeTable::compute(std::span<const double> frequencies, double magnitude, std::size_t position,
                        float* out) {
    for (const double frequency : frequencies) {
        const CosSin value = cos_sin(static_cast<double>(position) * frequency);
        *out++ = static_cast<float>(value.cos * magnitude);
        *out++ = static_cast<float>(value.sin * magnitude);
    }
}

}  // namespace troupe::cpu
