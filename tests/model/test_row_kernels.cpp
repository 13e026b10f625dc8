// The vectorised passes against their one-line meanings, at every awkward length.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "model/row_kernels.hpp"

using namespace troupe::model;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_row(std::size_t size, unsigned seed, float spread = 4) {
    std::mt19937 random{seed};
    std::normal_distribution<float> normal{0, spread};
    std::vector<float> row(size);
    for (float& z : row)
        z = normal(random);
    return row;
}

BlockMaxima maxima_of(std::span<const float> row, std::size_t block_size = 16) {
    BlockMaxima out;
    find_maxima(row, block_size, out);
    return out;
}

}  // namespace

TEST_CASE("A row's maxima are found at every length", "[model][row_kernels]") {
    for (const std::size_t size : {1, 2, 15, 16, 17, 31, 33, 255, 256, 257, 1000, 4099}) {
        const auto row = random_row(size, static_cast<unsigned>(size));
        for (const std::size_t block_size : {16, 64, 256}) {
            const BlockMaxima found = maxima_of(row, block_size);
            REQUIRE(found.valid);
            const auto best = std::max_element(row.begin(), row.end());
            CHECK(found.max == *best);
            CHECK(found.argmax == best - row.begin());
            REQUIRE(found.maxima.size() == (size + block_size - 1) / block_size);
            for (std::size_t b = 0; b < found.maxima.size(); ++b) {
                const auto end = row.begin() + std::min(size, (b + 1) * block_size);
                CHECK(found.maxima[b] == *std::max_element(row.begin() + b * block_size, end));
            }
        }
    }
}

TEST_CASE("The lowest id wins among equal maxima, -0 and +0 included", "[model][row_kernels]") {
    std::vector<float> row(100, -1);
    row[70] = row[33] = row[34] = 2;
    CHECK(maxima_of(row).argmax == 33);
    std::fill(row.begin(), row.end(), -1.0F);
    row[20] = -0.0F;
    row[40] = 0.0F;
    CHECK(maxima_of(row).argmax == 20);
    CHECK(maxima_of(std::vector<float>(50, -kInf + 0)).valid == false);
}

TEST_CASE("A row is valid without NaN and +infinity and with a score", "[model][row_kernels]") {
    for (const std::size_t size : {1, 16, 40, 300}) {
        for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
            for (const float bad : {kNan, -kNan, kInf}) {
                auto row = random_row(size, 1);
                row[at] = bad;
                CHECK(!maxima_of(row).valid);
            }
            std::vector<float> row(size, -kInf);
            CHECK(!maxima_of(row).valid);
            row[at] = -3;
            CHECK(maxima_of(row).valid);
            CHECK(maxima_of(row).argmax == static_cast<TokenId>(at));
        }
    }
    CHECK(!maxima_of({}).valid);
}

TEST_CASE("Gathering finds all scores from a threshold on", "[model][row_kernels]") {
    for (const std::size_t size : {1, 31, 32, 33, 500, 4099}) {
        auto row = random_row(size, static_cast<unsigned>(size));
        row[size / 2] = 1.5F;
        for (const float threshold : {-100.0F, 0.0F, 1.5F, 5.0F, 100.0F}) {
            std::vector<TokenId> want;
            for (std::size_t i = 0; i < size; ++i) {
                if (row[i] >= threshold) want.push_back(static_cast<TokenId>(i));
            }
            std::vector<TokenId> got{7, 7, 7};
            gather_at_least(row, maxima_of(row, 64), threshold, got);
            CHECK(got == want);
        }
    }
}

TEST_CASE("The sum of exponentials is that of doubles to float32's precision",
          "[model][row_kernels]") {
    for (const std::size_t size : {1, 127, 128, 129, 1000, 49152}) {
        const auto row = random_row(size, static_cast<unsigned>(size));
        const float max = maxima_of(row).max;
        double want = 0;
        for (const float z : row)
            want += std::exp((static_cast<double>(z) - max) * 0.5);
        CHECK(exp_sum(row, max, 0.5F) == Approx(want).epsilon(1e-6));
    }
    CHECK(exp_sum(std::vector<float>{1, -kInf, 1}, 1, 1) == 2);
}

TEST_CASE("The draw from a whole row is the argmax of score and noise", "[model][row_kernels]") {
    for (const std::size_t size : {1, 10, 255, 256, 257, 1000, 49152}) {
        auto row = random_row(size, static_cast<unsigned>(size));
        if (size > 2) row[1] = -kInf;
        const BlockMaxima blocks = maxima_of(row, 256);
        for (const double temperature : {0.01, 0.5, 1.0, 2.0}) {
            for (std::uint32_t position = 0; position < (size > 1000 ? 5 : 50); ++position) {
                const DrawPlace place{.seed = 42, .answer_index = 1, .position = position};
                TokenId want = 0;
                double best = -std::numeric_limits<double>::infinity();
                for (std::size_t i = 0; i < size; ++i) {
                    const auto id = static_cast<TokenId>(i);
                    const double value = row[i] / temperature + gumbel(place, id);
                    if (value > best) {
                        best = value;
                        want = id;
                    }
                }
                REQUIRE(gumbel_argmax(row, blocks, temperature, place) == want);
            }
        }
    }
}
