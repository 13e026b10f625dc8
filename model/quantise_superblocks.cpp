#include "model/quantise_superblocks.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "model/half.hpp"

namespace troupe::model {
namespace {

// Numbers and scales smaller than this count as 0; a superblock's largest number is about 1.
constexpr float kNothing = 1e-15F;
// A candidate puts a group's outermost number so many fifths of a quant before the last one, or
// behind it, where it is cut and all others have finer steps.
constexpr int kFifthsBefore = 5;
constexpr int kFifthsBehind = 6;
// What is left of the numbers' squares where rounding alone is wrong: no candidate is better.
constexpr float kExact = 1e-12F;

template <std::size_t kCount>
using Floats = std::array<float, kCount>;

// Of term(0) to term(kCount - 1), in lanes, so that compilers may use vectors and need not.
template <std::size_t kCount, class Term>
float sum(Term term) {
    constexpr std::size_t kLanes = 8;
    static_assert(kCount % kLanes == 0);
    Floats<kLanes> lanes{};
    for (std::size_t i = 0; i < kCount; i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane)
            lanes[lane] += term(i + lane);
    }
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// To the nearest whole number of a range, ties to even: a float of 2^23 and more has no fraction.
float rounded(float value, float low, float high) {
    constexpr float kWhole = 0x1.8p23F;
    return (std::min(std::max(value, low), high) + kWhole) - kWhole;
}

float inverse(float scale) {
    return std::abs(scale) < kNothing ? 0.0F : 1 / scale;
}

template <std::size_t kCount>
float largest_of(const Floats<kCount>& numbers) {
    return *std::max_element(numbers.begin(), numbers.end(),
                             [](float a, float b) { return std::abs(a) < std::abs(b); });
}

template <std::size_t kCount>
float squares(const Floats<kCount>& weights, const Floats<kCount>& numbers) {
    return sum<kCount>([&](std::size_t i) { return weights[i] * numbers[i] * numbers[i]; });
}

// The scale with the least sum of weights[i] * (numbers[i] - scale * q[i])^2, each q a whole number
// from `low` to `high`. The largest number goes to the end that is farther from 0, whatever its
// sign, which the scale then has.
template <std::size_t kCount>
float fit_scale(const Floats<kCount>& numbers, const Floats<kCount>& weights, float low,
                float high) {
    const float largest = largest_of(numbers);
    if (std::abs(largest) < kNothing) return 0;
    const float end = low < 0 ? low : high;
    Floats<kCount> q;
    const auto quantise_by = [&](float quants_per_unit) {
        for (std::size_t i = 0; i < kCount; ++i)
            q[i] = rounded(numbers[i] * quants_per_unit, low, high);
    };
    const auto error_of = [&](float scale) {
        return sum<kCount>([&](std::size_t i) {
            const float miss = numbers[i] - scale * q[i];
            return weights[i] * miss * miss;
        });
    };
    quantise_by(end / largest);
    float best = largest / end;
    float least = error_of(best);
    if (least <= kExact * squares(weights, numbers)) return best;
    for (int fifths = -kFifthsBefore; fifths <= kFifthsBehind; ++fifths) {
        const float reach = std::abs(end) + 0.2F * static_cast<float>(fifths);
        quantise_by(std::copysign(reach, end) / largest);
        const float common =
            sum<kCount>([&](std::size_t i) { return weights[i] * q[i] * numbers[i]; });
        const float scale = common / squares(weights, q);
        const float error = error_of(scale);
        if (!(error < least)) continue;
        least = error;
        best = scale;
    }
    return best;
}

// number = scale * q - minimum, none of them negative.
struct Line {
    float scale = 0;
    float minimum = 0;
};

// As fit_scale(), for quants from 0 to `high`.
template <std::size_t kCount>
Line fit_line(const Floats<kCount>& numbers, const Floats<kCount>& weights, float high) {
    const auto [lowest, highest] = std::minmax_element(numbers.begin(), numbers.end());
    const float low = std::min(*lowest, 0.0F);
    const float range = *highest - low;
    if (range < kNothing) return {0, -low};
    Floats<kCount> q;
    const auto error_of = [&](const Line& line) {
        return sum<kCount>([&](std::size_t i) {
            const float miss = numbers[i] - (line.scale * q[i] - line.minimum);
            return weights[i] * miss * miss;
        });
    };
    const auto quantise_by = [&](float quants_per_unit) {
        for (std::size_t i = 0; i < kCount; ++i)
            q[i] = rounded((numbers[i] - low) * quants_per_unit, 0, high);
    };
    const auto weighted = [&](const Floats<kCount>& a) {
        return sum<kCount>([&](std::size_t i) { return weights[i] * a[i]; });
    };
    const float w = sum<kCount>([&](std::size_t i) { return weights[i]; });
    const float wx = weighted(numbers);
    quantise_by(high / range);
    Line best{range / high, -low};
    float least = error_of(best);
    if (least <= kExact * squares(weights, numbers)) return best;
    for (int fifths = -kFifthsBefore; fifths <= kFifthsBehind; ++fifths) {
        quantise_by((high + 0.2F * static_cast<float>(fifths)) / range);
        const float wq = weighted(q);
        const float wqq = squares(weights, q);
        const float wxq =
            sum<kCount>([&](std::size_t i) { return weights[i] * q[i] * numbers[i]; });
        const float determinant = w * wqq - wq * wq;
        Line line{(w * wxq - wx * wq) / determinant, (wq * wxq - wx * wqq) / determinant};
        if (!(line.minimum > 0)) line = {wxq / wqq, 0};
        const float error = error_of(line);
        if (!(error < least) || line.scale < 0) continue;
        least = error;
        best = line;
    }
    return best;
}

// A superblock times a power of two, so that squares neither overflow nor vanish.
struct Normalised {
    explicit Normalised(std::span<const float, kSuperblock> from) {
        std::copy(from.begin(), from.end(), numbers.begin());
        std::frexp(largest_of(numbers), &exponent);
        exponent = std::clamp(exponent, -100, 126);
        const float factor = std::ldexp(1.0F, -exponent);
        for (float& number : numbers)
            number *= factor;
        const float mean_square =
            sum<kSuperblock>([&](std::size_t i) { return numbers[i] * numbers[i]; }) / kSuperblock;
        for (std::size_t i = 0; i < kSuperblock; ++i)
            weights[i] = std::sqrt(mean_square) + std::abs(numbers[i]);
    }

    template <std::size_t kCount>
    static Floats<kCount> group(const Floats<kSuperblock>& all, std::size_t index) {
        Floats<kCount> out;
        std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(index * kCount), kCount, out.begin());
        return out;
    }

    Floats<kSuperblock> numbers;
    Floats<kSuperblock> weights;
    int exponent = 0;
};

// A scale as the file has it, and what that is beside normalised numbers.
struct Half {
    Half() = default;
    Half(std::uint16_t half, int exponent)
        : bits(half), value(std::ldexp(half_to_float(half), -exponent)) {}

    std::uint16_t bits = 0;
    float value = 0;
};

// fit_scale() as a half, or a neighbour of that with which less is lost. Scales of scales are so
// small that many halves are subnormal: one that is too small by a percent cuts the largest groups.
template <std::size_t kCount>
Half fit_half(const Floats<kCount>& numbers, const Floats<kCount>& weights, float low, float high,
              int exponent) {
    const float scale = std::ldexp(fit_scale(numbers, weights, low, high), exponent);
    const std::uint16_t nearest = float_to_half(std::clamp(scale, -65504.0F, 65504.0F));
    Half best;
    float least = std::numeric_limits<float>::infinity();
    for (const int step : {0, 1, -1}) {
        const int magnitude = (nearest & 0x7FFF) + step;
        if (magnitude < 0 || magnitude > 0x7BFF) continue;
        const Half half(static_cast<std::uint16_t>((nearest & 0x8000) | magnitude), exponent);
        const float quants_per_unit = inverse(half.value);
        const float error = sum<kCount>([&](std::size_t i) {
            const float q = rounded(numbers[i] * quants_per_unit, low, high);
            const float miss = numbers[i] - half.value * q;
            return weights[i] * miss * miss;
        });
        if (!(error < least)) continue;
        least = error;
        best = half;
    }
    return best;
}

// ---- Q4_K, Q5_K: eight groups of 32, scales and minima of 6 bits -------------------------------

constexpr std::size_t kLineGroups = 8;
constexpr float kScaleMost = 63;

struct LineBlock {
    Half d;
    Half minimum;
    Floats<kLineGroups> scales{};  // whole numbers, as all below
    Floats<kLineGroups> minima{};
    Floats<kSuperblock> quants{};
};

void quantise_by_scales(const Normalised& block, float high, LineBlock& out) {
    for (std::size_t j = 0; j < kSuperblock; ++j) {
        const float minimum = out.minimum.value * out.minima[j / 32];
        const float quants_per_unit = inverse(out.d.value * out.scales[j / 32]);
        out.quants[j] = rounded((block.numbers[j] + minimum) * quants_per_unit, 0, high);
    }
}

LineBlock fit_lines(const Normalised& block, float high) {
    Floats<kLineGroups> scales, minima, scale_weights, minimum_weights;
    for (std::size_t g = 0; g < kLineGroups; ++g) {
        const auto numbers = Normalised::group<32>(block.numbers, g);
        const auto weights = Normalised::group<32>(block.weights, g);
        const Line line = fit_line(numbers, weights, high);
        scales[g] = line.scale;
        minima[g] = line.minimum;
        minimum_weights[g] = sum<32>([&](std::size_t i) { return weights[i]; });
        const float quants_per_unit = inverse(line.scale);
        Floats<32> q;
        for (std::size_t i = 0; i < 32; ++i)
            q[i] = rounded((numbers[i] + line.minimum) * quants_per_unit, 0, high);
        scale_weights[g] = squares(weights, q);
    }
    LineBlock out;
    out.d = fit_half(scales, scale_weights, 0, kScaleMost, block.exponent);
    out.minimum = fit_half(minima, minimum_weights, 0, kScaleMost, block.exponent);
    for (std::size_t g = 0; g < kLineGroups; ++g) {
        out.scales[g] = rounded(scales[g] * inverse(out.d.value), 0, kScaleMost);
        out.minima[g] = rounded(minima[g] * inverse(out.minimum.value), 0, kScaleMost);
    }
    quantise_by_scales(block, high, out);
    return out;
}

unsigned bits_of(float whole) {
    return static_cast<unsigned>(static_cast<int>(whole));
}

std::byte* write_u16(std::byte* out, std::uint16_t value) {
    std::memcpy(out, &value, sizeof value);
    return out + sizeof value;
}

void write_scales_and_minima(const LineBlock& block, std::byte* out) {
    for (std::size_t i = 0; i < 4; ++i) {
        const unsigned scale = bits_of(block.scales[4 + i]);
        const unsigned minimum = bits_of(block.minima[4 + i]);
        out[i] = static_cast<std::byte>(bits_of(block.scales[i]) | scale >> 4 << 6);
        out[4 + i] = static_cast<std::byte>(bits_of(block.minima[i]) | minimum >> 4 << 6);
        out[8 + i] = static_cast<std::byte>((scale & 15) | (minimum & 15) << 4);
    }
}

template <unsigned kBits>
void quantise_lines(std::span<const float, kSuperblock> numbers, std::byte* out) {
    const LineBlock block = fit_lines(Normalised(numbers), static_cast<float>((1U << kBits) - 1));
    out = write_u16(write_u16(out, block.d.bits), block.minimum.bits);
    write_scales_and_minima(block, out);
    out += 12;
    const auto quant = [&](std::size_t j) { return bits_of(block.quants[j]); };
    if (kBits == 5) {
        for (std::size_t i = 0; i < 32; ++i) {
            unsigned fifth = 0;
            for (std::size_t g = 0; g < kLineGroups; ++g)
                fifth |= quant(32 * g + i) >> 4 << g;
            out[i] = static_cast<std::byte>(fifth);
        }
        out += 32;
    }
    for (std::size_t i = 0; i < 128; ++i) {
        const std::size_t j = i / 32 * 64 + i % 32;
        out[i] = static_cast<std::byte>((quant(j) & 15) | (quant(j + 32) & 15) << 4);
    }
}

// ---- Q6_K: sixteen groups of 16, signed scales of 8 bits ---------------------------------------

constexpr std::size_t kScaleGroups = 16;

}  // namespace

void quantise_q4_k(std::span<const float, kSuperblock> numbers, std::byte* out) {
    quantise_lines<4>(numbers, out);
}

void quantise_q5_k(std::span<const float, kSuperblock> numbers, std::byte* out) {
    quantise_lines<5>(numbers, out);
}

void quantise_q6_k(std::span<const float, kSuperblock> numbers, std::byte* out) {
    const Normalised block(numbers);
    Floats<kScaleGroups> scales, weights;
    for (std::size_t g = 0; g < kScaleGroups; ++g) {
        const auto x = Normalised::group<16>(block.numbers, g);
        const auto w = Normalised::group<16>(block.weights, g);
        scales[g] = fit_scale(x, w, -32, 31);
        // What a scale's error costs: its numbers' own squares are near enough to those of quants.
        weights[g] = squares(w, x) / std::max(scales[g] * scales[g], kNothing);
    }
    const Half d = fit_half(scales, weights, -128, 127, block.exponent);
    std::array<unsigned, kSuperblock> quants;
    for (std::size_t g = 0; g < kScaleGroups; ++g) {
        const float scale = rounded(scales[g] * inverse(d.value), -128, 127);
        out[192 + g] = static_cast<std::byte>(static_cast<int>(scale));
        const float quants_per_unit = inverse(d.value * scale);
        for (std::size_t j = 16 * g; j < 16 * (g + 1); ++j)
            quants[j] = bits_of(rounded(block.numbers[j] * quants_per_unit, -32, 31) + 32);
    }
    for (std::size_t i = 0; i < 128; ++i) {
        const std::size_t j = i / 64 * 128 + i % 64;
        out[i] = static_cast<std::byte>((quants[j] & 15) | (quants[j + 64] & 15) << 4);
    }
    for (std::size_t i = 0; i < 64; ++i) {
        const std::size_t j = i / 32 * 128 + i % 32;
        out[128 + i] = static_cast<std::byte>(quants[j] >> 4 | quants[j + 32] >> 4 << 2 |
                                              quants[j + 64] >> 4 << 4 | quants[j + 96] >> 4 << 6);
    }
    write_u16(out + 208, d.bits);
}

}  // namespace troupe::model
