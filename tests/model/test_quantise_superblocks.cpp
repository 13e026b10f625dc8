// The K formats as `troupe convert` makes them: what PyPI's gguf reads in them
// (tests/tools/make_superblock_reference.py), how near they are, and blocks that are known.
#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "model/half.hpp"
#include "model/quantise.hpp"
#include "model/superblocks.hpp"
#include "tests/support/json_file.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/sha256.hpp"

namespace troupe::model {
namespace {

constexpr std::array kTypes{TensorType::q4_k, TensorType::q5_k, TensorType::q6_k};

std::vector<std::byte> quantised(TensorType type, const std::vector<float>& numbers) {
    std::vector<std::byte> out(*tensor_bytes(type, numbers.size(), 1));
    quantise(type, numbers, out);
    return out;
}

std::vector<float> dequantised(TensorType type, const std::vector<std::byte>& blocks) {
    const TensorTypeInfo& info = tensor_type_info(type);
    std::vector<float> out(blocks.size() / info.block_bytes * info.block_size);
    dequantise(type, blocks, out);
    return out;
}

std::vector<float> there_and_back(TensorType type, const std::vector<float>& numbers) {
    return dequantised(type, quantised(type, numbers));
}

// The root mean square of what is lost, beside that of the numbers.
double relative_error(const std::vector<float>& numbers, const std::vector<float>& got) {
    double miss = 0, all = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        miss += std::pow(double{got[i]} - double{numbers[i]}, 2);
        all += std::pow(double{numbers[i]}, 2);
    }
    return std::sqrt(miss / all);
}

float whole(float value, float low, float high) {
    return std::clamp(std::nearbyint(value), low, high);
}

float halved(float value) {
    return half_to_float(float_to_half(value));
}

// A superblock of Q4_K (high 15) or Q5_K (31) whose groups reach from their lowest number to their
// highest.
std::vector<float> plain_lines(std::span<const float> x, float high) {
    std::array<float, 8> scales{}, minima{};
    for (std::size_t g = 0; g < 8; ++g) {
        const auto group = x.subspan(32 * g, 32);
        const auto [low, top] = std::minmax_element(group.begin(), group.end());
        minima[g] = -std::min(*low, 0.0F);
        scales[g] = (std::max(*top, 0.0F) + minima[g]) / high;
    }
    const float d = halved(*std::max_element(scales.begin(), scales.end()) / 63);
    const float m = halved(*std::max_element(minima.begin(), minima.end()) / 63);
    std::vector<float> out;
    for (std::size_t j = 0; j < kSuperblock; ++j) {
        const float scale = d * whole(scales[j / 32] / d, 0, 63);
        const float minimum = m * whole(minima[j / 32] / m, 0, 63);
        out.push_back(scale * whole((x[j] + minimum) / scale, 0, high) - minimum);
    }
    return out;
}

// One of Q6_K whose groups reach to their largest number.
std::vector<float> plain_scales(std::span<const float> x) {
    std::array<float, 16> scales{};
    for (std::size_t j = 0; j < kSuperblock; ++j)
        scales[j / 16] = std::max(scales[j / 16], std::abs(x[j]) / 31);
    const float d = halved(*std::max_element(scales.begin(), scales.end()) / 127);
    std::vector<float> out;
    for (std::size_t j = 0; j < kSuperblock; ++j) {
        const float scale = d * whole(scales[j / 16] / d, 0, 127);
        out.push_back(scale * whole(x[j] / scale, -32, 31));
    }
    return out;
}

std::vector<float> plain(TensorType type, const std::vector<float>& numbers) {
    std::vector<float> out;
    for (std::size_t at = 0; at < numbers.size(); at += kSuperblock) {
        const auto block = std::span(numbers).subspan(at, kSuperblock);
        const auto made = type == TensorType::q6_k
                              ? plain_scales(block)
                              : plain_lines(block, type == TensorType::q4_k ? 15 : 31);
        out.insert(out.end(), made.begin(), made.end());
    }
    return out;
}

std::vector<float> filled(float value) {
    return std::vector<float>(kSuperblock, value);
}

}  // namespace

TEST_CASE("Superblocks hold for gguf what they hold here", "[model][quantise]") {
    const auto reference = test::read_json(test::test_data("gguf_blocks/superblocks.json"));
    const auto bytes = test::from_hex(reference.at("numbers"));
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    for (const TensorType type : kTypes) {
        CAPTURE(to_string(type));
        const auto& expected = reference.at("types").at(to_string(type));
        const auto blocks = quantised(type, numbers);
        CHECK(blocks == test::from_hex(expected.at("blocks")));
        const auto values = dequantised(type, blocks);
        CHECK(test::sha256_hex(std::as_bytes(std::span(values))) ==
              std::string(expected.at("values_sha256").as_string()));
    }
}

TEST_CASE("Scales that were sought lose less than those from lowest to highest",
          "[model][quantise]") {
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.02F);
    std::student_t_distribution<float> heavy(4);
    std::uniform_real_distribution<float> even(-1, 1);
    struct Drawn {
        std::string name;
        std::array<double, 3> most;  // a relative error for each of kTypes
        std::vector<float> numbers;
    };
    std::array<Drawn, 3> all{{{"normal", {0.073, 0.0365, 0.018}, {}},
                              {"heavy tails", {0.090, 0.0455, 0.0235}, {}},
                              {"even", {0.056, 0.028, 0.0135}, {}}}};
    for (std::size_t i = 0; i < 100 * kSuperblock; ++i) {
        all[0].numbers.push_back(normal(random));
        all[1].numbers.push_back(heavy(random));
        all[2].numbers.push_back(even(random));
    }
    for (const Drawn& drawn : all) {
        for (std::size_t i = 0; i < kTypes.size(); ++i) {
            CAPTURE(drawn.name, to_string(kTypes[i]));
            const auto sought = there_and_back(kTypes[i], drawn.numbers);
            const double error = relative_error(drawn.numbers, sought);
            CHECK(error < drawn.most[i]);
            CHECK(error < 0.97 * relative_error(drawn.numbers, plain(kTypes[i], drawn.numbers)));
        }
    }
}

TEST_CASE("Blocks of one number are exact up to the rounding of their scale", "[model][quantise]") {
    for (const TensorType type : kTypes) {
        CAPTURE(to_string(type));
        CHECK(there_and_back(type, filled(0)) == filled(0));
        CHECK(there_and_back(type, filled(-0.0F)) == filled(0));
        for (const float value : {1.0F, -1.5F, 0.3F, -0.007F}) {
            CAPTURE(value);
            // A half of less than 2^-14 has fewer digits, and is a whole number of 2^-24.
            const float most = std::abs(value) * (std::abs(value) < 0.3F ? 0x1p-8F : 0x1p-11F);
            for (const float got : there_and_back(type, filled(value)))
                REQUIRE(std::abs(got - value) <= most);
        }
    }
    const Superblock above = read_q4_k(quantised(TensorType::q4_k, filled(1.5F)).data());
    CHECK(above.d == float_to_half(1.5F / 15 / 63));
    CHECK(above.minimum == 0);
    CHECK(above.scales[7] == 63);
    CHECK(above.quants[255] == 15);
    const Superblock below = read_q5_k(quantised(TensorType::q5_k, filled(-1.5F)).data());
    CHECK(below.d == 0);
    CHECK(below.minimum == float_to_half(1.5F / 63));
    CHECK(below.minima[7] == 63);
    CHECK(below.quants[255] == 0);
    const Superblock scaled = read_q6_k(quantised(TensorType::q6_k, filled(1.5F)).data());
    CHECK(scaled.d == float_to_half(1.5F / 32 / 128));
    CHECK(scaled.scales[15] == -128);
    CHECK(scaled.quants[255] == -32);
}

TEST_CASE("Whole numbers of quants come back as they were", "[model][quantise]") {
    std::vector<float> numbers;
    for (std::size_t j = 0; j < kSuperblock; ++j)  // scales 63 * 2^-6, minima 0 or 63 * 2^-3
        numbers.push_back(63 * (0x1p-6F * static_cast<float>(j % 16) - (j < 128 ? 0x1p-3F : 0)));
    CHECK(there_and_back(TensorType::q4_k, numbers) == numbers);
    for (std::size_t j = 0; j < kSuperblock; ++j) {  // scales -128 or 64, times 2^-12
        const float scale = j % 32 < 16 ? -0x1p-5F : 0x1p-6F;
        numbers[j] = scale * (4 * static_cast<float>(j % 16) - 32);
    }
    CHECK(there_and_back(TensorType::q6_k, numbers) == numbers);
}

TEST_CASE("One outlier costs the others of its group their bits, and no other group",
          "[model][quantise]") {
    std::vector<float> numbers(kSuperblock);
    for (std::size_t j = 0; j < kSuperblock; ++j)
        numbers[j] = std::sin(static_cast<float>(j));
    numbers[40] = 20;
    for (const TensorType type : kTypes) {
        CAPTURE(to_string(type));
        const auto got = there_and_back(type, numbers);
        CHECK(got[40] == Approx(20).epsilon(0.02));
        double apart = 0;
        for (std::size_t j = 64; j < kSuperblock; ++j)
            apart = std::max(apart, std::abs(double{got[j]} - double{numbers[j]}));
        CHECK(apart < (type == TensorType::q4_k ? 0.35 : type == TensorType::q5_k ? 0.25 : 0.1));
    }
}

TEST_CASE("The largest and the smallest numbers give finite blocks", "[model][quantise]") {
    for (const TensorType type : kTypes) {
        CAPTURE(to_string(type));
        for (const float value : {std::numeric_limits<float>::max(), 1e30F, 1e-30F,
                                  std::numeric_limits<float>::denorm_min()}) {
            std::vector<float> numbers(kSuperblock);
            for (std::size_t j = 0; j < kSuperblock; ++j)
                numbers[j] = (j % 3 == 0 ? -1.0F : 0.5F) * value;
            for (const float got : there_and_back(type, numbers))
                CHECK(std::isfinite(got));
        }
    }
}

}  // namespace troupe::model
