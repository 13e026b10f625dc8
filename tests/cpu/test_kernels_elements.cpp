// Norms, activations, quantisation, rotation and maxima: plain against double, other sets against
// plain bit for bit, over lengths that are no multiple of anything.
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kernels/rope.hpp"
#include "tests/cpu/kernels_support.hpp"

namespace troupe::test {
namespace {

constexpr std::size_t lengths[] = {1, 5, 8, 15, 16, 17, 31, 64, 100, 172, 576, 1536};
constexpr float epsilon = 1e-5F;

// A row with one outlier as large as the default model's.
std::vector<float> hidden_row(std::size_t columns, Random& random) {
    std::vector<float> x = random.floats(columns, 50.0F);
    x[random.below(columns)] = 22000.0F;
    return x;
}

std::vector<float> extreme_row(std::size_t columns) {
    constexpr float values[] = {0.0F,    -0.0F, 1e-45F, -1e-40F, 1e-20F, -88.5F, 88.5F,  200.0F,
                                -200.0F, 1e4F,  -1e4F,  3e38F,   -3e38F, 0.5F,   -87.4F, 87.9F};
    std::vector<float> x(columns);
    for (std::size_t k = 0; k < columns; ++k)
        x[k] = values[k % std::size(values)];
    return x;
}

}  // namespace

TEST_CASE("plain rms_norm is near the exact one", "[cpu][kernels]") {
    Random random;
    for (const std::size_t columns : lengths) {
        const auto x = hidden_row(columns, random), weight = random.floats(columns, 3.0F);
        std::vector<float> out(columns);
        plain_kernels().rms_norm(x.data(), weight.data(), columns, epsilon, out.data());
        double squares = 0.0;
        for (const float value : x)
            squares += double{value} * value;
        const double r = 1.0 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
        for (std::size_t k = 0; k < columns; ++k) {
            REQUIRE(out[k] == Approx(x[k] * r * weight[k]).epsilon(1e-6).margin(1e-12));
        }
    }
}

TEST_CASE("plain silu_mul is near the exact one", "[cpu][kernels]") {
    for (float gate = -100.0F; gate < 100.0F; gate += 0.0137F) {
        const float up = 1.7F;
        float out = 0.0F;
        plain_kernels().silu_mul(&gate, &up, 1, &out);
        const double expected = gate / (1.0 + std::exp(-double{gate})) * up;
        REQUIRE(out == Approx(expected).epsilon(5e-7).margin(1e-35));
    }
}

TEST_CASE("all sets compute elements to the same bits", "[cpu][kernels]") {
    Random random;
    for (const std::size_t columns : lengths) {
        for (const auto& x : {hidden_row(columns, random), extreme_row(columns)}) {
            const auto y = random.floats(columns, 2.0F);
            for (const Kernels* kernels : fast_kernels()) {
                CAPTURE(kernels->name, columns);
                std::vector<float> expected(columns), out(columns);
                plain_kernels().rms_norm(x.data(), y.data(), columns, epsilon, expected.data());
                kernels->rms_norm(x.data(), y.data(), columns, epsilon, out.data());
                REQUIRE(same_bits(out, expected));
                plain_kernels().silu_mul(x.data(), y.data(), columns, expected.data());
                kernels->silu_mul(x.data(), y.data(), columns, out.data());
                REQUIRE(same_bits(out, expected));
                expected = out = x;
                plain_kernels().add(expected.data(), y.data(), columns);
                kernels->add(out.data(), y.data(), columns);
                REQUIRE(same_bits(out, expected));
                REQUIRE(kernels->argmax(x.data(), columns) ==
                        plain_kernels().argmax(x.data(), columns));
                REQUIRE(kernels->max(x.data(), columns) == plain_kernels().max(x.data(), columns));
            }
        }
    }
}

TEST_CASE("quantised values are within half a step, and their sums are right", "[cpu][kernels]") {
    Random random;
    const std::size_t columns = 320;
    const auto x = hidden_row(columns, random);
    const Quantized rows(x, columns, plain_kernels());
    for (std::size_t b = 0; b < columns / 32; ++b) {
        const ActivationBlock& block = rows.rows.block(0, b);
        int sum = 0;
        for (std::size_t i = 0; i < 32; ++i) {
            REQUIRE(std::abs(block.q[i]) <= 127);
            REQUIRE(rows.value(0, b * 32 + i) == Approx(x[b * 32 + i]).margin(block.d * 0.5001));
            sum += block.q[i];
        }
        REQUIRE(block.s == block.d * static_cast<float>(sum));
        REQUIRE(block.start_u4 == integer_bias_bits - 8 * sum);
        REQUIRE(block.start_u8 == integer_bias_bits - 128 * sum);
    }
}

TEST_CASE("a value that stands alone in its block is kept as it is", "[cpu][kernels]") {
    const float infinity = std::numeric_limits<float>::infinity();
    const auto place_of = [](const std::vector<float>& x, const Kernels& kernels) {
        const Quantized rows(x, 32, kernels);
        const std::size_t place = rows.place(0, 0);
        if (place != 0) {
            REQUIRE(same_bits(rows.outlier(0, 0), x[place - 1]));
            REQUIRE(rows.rows.block(0, 0).q[place - 1] == 0);
            auto rest = x;
            rest[place - 1] = 0.0F;
            REQUIRE(
                same_block(rows.rows.block(0, 0), Quantized(rest, 32, kernels).rows.block(0, 0)));
        }
        return place;
    };
    for (const Kernels* kernels : available_kernels()) {
        CAPTURE(kernels->name);
        std::vector<float> x(32);
        for (std::size_t k = 0; k < 32; ++k)
            x[k] = k % 2 == 0 ? -1.0F : 1.0F;
        REQUIRE(place_of(x, *kernels) == 0);
        for (const std::size_t k : {0, 15, 16, 31}) {
            for (const float sign : {1.0F, -1.0F}) {
                auto y = x;
                y[k] = sign * usual_outlier_ratio;
                REQUIRE(place_of(y, *kernels) == k + 1);
                y[k] = sign * std::nextafter(usual_outlier_ratio, 0.0F);
                REQUIRE(place_of(y, *kernels) == 0);
                y[k] = sign * 1e30F;
                REQUIRE(place_of(y, *kernels) == k + 1);
                y[(k + 5) % 32] = 0.9e30F;  // two stand out together
                REQUIRE(place_of(y, *kernels) == 0);
                y[(k + 5) % 32] = infinity;
                REQUIRE(place_of(y, *kernels) == 0);
            }
        }
        std::fill(x.begin(), x.end(), 0.0F);
        REQUIRE(place_of(x, *kernels) == 0);
        x[7] = -3.0F;
        REQUIRE(place_of(x, *kernels) == 8);
        x[7] = 1e-35F;  // a block of zeros
        REQUIRE(place_of(x, *kernels) == 0);
    }
}

TEST_CASE("all sets quantise to the same bits, fused or not", "[cpu][kernels]") {
    Random random;
    constexpr std::size_t columns = 576, rows = 21;
    std::vector<std::vector<float>> inputs(rows);
    for (auto& x : inputs)
        x = hidden_row(columns, random);
    inputs[1] = extreme_row(columns);
    std::fill_n(inputs[2].begin(), 64, 0.0F);
    for (std::size_t k = 0; k < columns; ++k)
        inputs[3][k] = (static_cast<float>(k % 40) - 20) / 2;
    inputs[4][70] = std::numeric_limits<float>::quiet_NaN();
    inputs[5][9] = -std::numeric_limits<float>::infinity();
    for (float& value : inputs[6])
        value *= 1e-33F;
    const auto weight = random.floats(columns, 2.0F);

    for (const Kernels* kernels : available_kernels()) {
        Quantized direct(rows, columns), norm(rows, columns), silu(rows, columns);
        for (std::size_t t = 0; t < rows; ++t) {
            const float* x = inputs[t].data();
            kernels->quantize(x, direct.rows, t);
            kernels->rms_norm_quantize(x, weight.data(), epsilon, norm.rows, t);
            kernels->silu_mul_quantize(x, weight.data(), silu.rows, t);
        }
        for (std::size_t t = 0; t < rows; ++t) {
            const float* x = inputs[t].data();
            std::vector<float> normed(columns), gated(columns);
            plain_kernels().rms_norm(x, weight.data(), columns, epsilon, normed.data());
            plain_kernels().silu_mul(x, weight.data(), columns, gated.data());
            const Quantized expected[] = {{inputs[t], columns, plain_kernels()},
                                          {normed, columns, plain_kernels()},
                                          {gated, columns, plain_kernels()}};
            const Quantized* got[] = {&direct, &norm, &silu};
            for (std::size_t i = 0; i < 3; ++i) {
                for (std::size_t b = 0; b < columns / 32; ++b) {
                    CAPTURE(kernels->name, t, i, b);
                    REQUIRE(same_block(got[i]->rows.block(t, b), expected[i].rows.block(0, b)));
                    REQUIRE(got[i]->place(t, b) == expected[i].place(0, b));
                    REQUIRE(same_bits(got[i]->outlier(t, b), expected[i].outlier(0, b)));
                }
            }
        }
    }
}

TEST_CASE("rope rotates adjacent pairs, in all sets to the same bits", "[cpu][kernels]") {
    Random random;
    for (const std::size_t dim : {8, 20, 64, 128}) {
        const std::size_t rotated = dim == 20 ? 12 : dim, heads = 3, position = 77;
        const RopeTable table(rope_frequencies(rotated, 10000.0), position + 1);
        const auto x = random.floats(heads * dim, 4.0F);
        auto expected = x;
        plain_kernels().rope(expected.data(), heads, dim, table.angles(position), table.pairs());
        for (std::size_t h = 0; h < heads; ++h) {
            for (std::size_t d = 0; d < dim; d += 2) {
                const double a = x[h * dim + d], b = x[h * dim + d + 1];
                const double share = static_cast<double>(d) / static_cast<double>(rotated);
                const double angle =
                    d < rotated ? static_cast<double>(position) * std::pow(10000.0, -share) : 0.0;
                const double c = std::cos(angle), s = std::sin(angle);
                REQUIRE(expected[h * dim + d] == Approx(a * c - b * s).margin(1e-6));
                REQUIRE(expected[h * dim + d + 1] == Approx(a * s + b * c).margin(1e-6));
            }
        }
        for (const Kernels* kernels : fast_kernels()) {
            auto out = x;
            kernels->rope(out.data(), heads, dim, table.angles(position), table.pairs());
            CAPTURE(kernels->name, dim);
            REQUIRE(same_bits(out, expected));
        }
    }
}

TEST_CASE("argmax takes the first of equals and never a NaN", "[cpu][kernels]") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const float infinity = std::numeric_limits<float>::infinity();
    Random random;
    for (const Kernels* kernels : available_kernels()) {
        CAPTURE(kernels->name);
        REQUIRE(kernels->max(nullptr, 0) == -infinity);
        for (const std::size_t count : {1, 7, 64, 65, 200, 515}) {
            auto x = random.floats(count);
            const std::size_t first = random.below(count), second = random.below(count);
            x[first] = x[second] = 5.0F;
            REQUIRE(kernels->argmax(x.data(), count) == std::min(first, second));
            REQUIRE(kernels->max(x.data(), count) == 5.0F);
            for (std::size_t k = 0; k < count; k += 2)
                x[k] = nan;
            std::size_t best = 0;
            float largest = -infinity;
            for (std::size_t k = 1; k < count; k += 2) {
                if (x[k] > largest) largest = x[k], best = k;
            }
            REQUIRE(kernels->argmax(x.data(), count) == best);
        }
    }
}

}  // namespace troupe::test
