// Plain loops that the compiler turns into vectors, cloned per instruction set. Built with
// -fno-trapping-math (see CMakeLists.txt): without it GCC 12 keeps a branch for every comparison.
#include "model/row_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "model/math.hpp"
#include "runtime/base/assert.hpp"

// Sanitizers cannot run in the resolvers that pick a clone, so they get the plain code.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TROUPE_CLONES [[gnu::target_clones("avx512f", "avx2", "default")]]
#else
#define TROUPE_CLONES
#endif

namespace troupe::model {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// An integer that orders as the float does, so that a maximum is one that vectorises: -0 equals +0,
// NaNs lie beyond the infinities.
[[gnu::always_inline]] constexpr std::int32_t ordered(float value) {
    const auto bits = std::bit_cast<std::int32_t>(value + 0.0F);
    return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}

constexpr float from_ordered(std::int32_t value) {
    return std::bit_cast<float>(value ^ ((value >> 31) & 0x7FFFFFFF));
}

}  // namespace

TROUPE_CLONES
void find_maxima(std::span<const float> row, std::size_t block_size, BlockMaxima& out) {
    TROUPE_ASSERT(block_size > 0 && block_size % 16 == 0);
    out.block_size = block_size;
    out.maxima.resize((row.size() + block_size - 1) / block_size);
    std::int32_t lowest = std::numeric_limits<std::int32_t>::max();
    std::int32_t highest = std::numeric_limits<std::int32_t>::min();
    std::size_t highest_block = 0;
    for (std::size_t block = 0; block < out.maxima.size(); ++block) {
        const float* at = row.data() + block * block_size;
        const std::size_t count = std::min(block_size, row.size() - block * block_size);
        std::int32_t low = std::numeric_limits<std::int32_t>::max();
        std::int32_t high = std::numeric_limits<std::int32_t>::min();
        for (std::size_t i = 0; i < count; ++i) {
            const std::int32_t value = ordered(at[i]);
            low = std::min(low, value);
            high = std::max(high, value);
        }
        out.maxima[block] = from_ordered(high);
        lowest = std::min(lowest, low);
        if (high > highest) {
            highest = high;
            highest_block = block;
        }
    }
    out.valid = !row.empty() && lowest >= ordered(-kInfinity) && highest < ordered(kInfinity) &&
                highest > ordered(-kInfinity);
    if (!out.valid) return;
    out.max = from_ordered(highest);
    std::size_t id = highest_block * block_size;
    while (row[id] != out.max)
        ++id;
    out.argmax = static_cast<TokenId>(id);
}

TROUPE_CLONES
void gather_at_least(std::span<const float> row, const BlockMaxima& blocks, float threshold,
                     std::vector<TokenId>& ids) {
    constexpr std::size_t kChunk = 32;
    ids.clear();
    for (std::size_t block = 0; block < blocks.maxima.size(); ++block) {
        if (!(blocks.maxima[block] >= threshold)) continue;
        const std::size_t end = std::min(row.size(), (block + 1) * blocks.block_size);
        std::size_t begin = block * blocks.block_size;
        for (; begin < end; begin += kChunk) {
            const std::size_t chunk_end = std::min(end, begin + kChunk);
            std::int32_t hits = 0;
            for (std::size_t i = begin; i < chunk_end; ++i)
                hits |= row[i] >= threshold ? 1 : 0;
            if (hits == 0) continue;
            for (std::size_t i = begin; i < chunk_end; ++i) {
                if (row[i] >= threshold) ids.push_back(static_cast<TokenId>(i));
            }
        }
    }
}

TROUPE_CLONES
double exp_sum(std::span<const float> row, float max, float inverse_temperature) {
    constexpr std::size_t kSumLanes = 128;
    std::array<double, kSumLanes> lanes{};
    std::array<float, kSumLanes> terms;
    for (std::size_t begin = 0; begin < row.size(); begin += kSumLanes) {
        const std::size_t count = std::min(kSumLanes, row.size() - begin);
        const float* at = row.data() + begin;
        if (count < kSumLanes) {
            terms.fill(-kInfinity);
            std::copy_n(at, count, terms.begin());
            at = terms.data();
        }
        for (std::size_t i = 0; i < kSumLanes; ++i) {
            terms[i] = math::exp((at[i] - max) * inverse_temperature);
        }
        for (std::size_t i = 0; i < kSumLanes; ++i)
            lanes[i] += static_cast<double>(terms[i]);
    }
    for (std::size_t width = kSumLanes / 2; width > 0; width /= 2) {
        for (std::size_t i = 0; i < width; ++i)
            lanes[i] += lanes[i + width];
    }
    return lanes[0];
}

namespace {

constexpr std::size_t kDrawChunk = 256;                // tokens whose words are made at once
constexpr std::size_t kDrawCounters = kDrawChunk / 4;  // a counter serves four

// The random words of tokens [first, first + 256), as random_word gives them.
[[gnu::always_inline]] inline void random_words(const DrawPlace& place, std::uint32_t first,
                                                std::array<std::uint32_t, kDrawChunk>& words) {
    std::array<std::array<std::uint32_t, kDrawCounters>, 4> c;
    for (std::uint32_t j = 0; j < kDrawCounters; ++j) {
        c[0][j] = first / 4 + j;
        c[1][j] = place.position;
        c[2][j] = place.answer_index;
        c[3][j] = 0;
    }
    PhiloxKey key = place.key();
    for (int round = 0; round < kPhiloxRounds; ++round) {
        for (std::size_t j = 0; j < kDrawCounters; ++j) {
            const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * c[0][j];
            const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * c[2][j];
            c[0][j] = static_cast<std::uint32_t>(product1 >> 32) ^ c[1][j] ^ key[0];
            c[1][j] = static_cast<std::uint32_t>(product1);
            c[2][j] = static_cast<std::uint32_t>(product0 >> 32) ^ c[3][j] ^ key[1];
            c[3][j] = static_cast<std::uint32_t>(product0);
        }
        key[0] += kPhiloxWeyl0;
        key[1] += kPhiloxWeyl1;
    }
    for (std::size_t group = 0; group < kDrawCounters / 16; ++group) {
        for (std::size_t word = 0; word < 4; ++word) {
            std::copy_n(c[word].begin() + group * 16, 16, words.begin() + (group * 4 + word) * 16);
        }
    }
}

// At least gumbel(word), without a logarithm: -ln(-ln u) <= -ln(1 - u), and log2 of a float is at
// least its bits read as a fixed-point number.
[[gnu::always_inline]] inline float gumbel_bound(std::uint32_t word) {
    constexpr float kLn2 = 0.693147182F;
    // 1 - u in units of 2^-24, rounded down; the last term is the half unit of 2^-32.
    const float distance = static_cast<float>(static_cast<std::int32_t>(~word >> 8)) + 0x1p-9F;
    const float log2 =
        static_cast<float>(std::bit_cast<std::int32_t>(distance)) * 0x1p-23F - 127.0F;
    return (24.0F - log2) * kLn2;
}

}  // namespace

TROUPE_CLONES
TokenId gumbel_argmax(std::span<const float> row, const BlockMaxima& blocks, double temperature,
                      const DrawPlace& place) {
    // Covers the rounding of the float32 bounds, which only decide who is looked at exactly.
    constexpr double kSlack = 1e-3;
    const float max = blocks.max;
    const float inverse = static_cast<float>(1.0 / temperature);
    const double top = static_cast<double>(max) / temperature;
    TokenId winner = blocks.argmax;
    double best = top + gumbel(place, winner);

    std::array<std::uint32_t, kDrawChunk> words;
    std::array<float, kDrawChunk> bounds;
    for (std::size_t begin = 0; begin < row.size(); begin += kDrawChunk) {
        const std::size_t count = std::min(kDrawChunk, row.size() - begin);
        const float* at = row.data() + begin;
        random_words(place, static_cast<std::uint32_t>(begin), words);
        const auto limit = static_cast<float>(best - top - kSlack);
        std::int32_t hits = 0;
        for (std::size_t i = 0; i < count; ++i) {
            bounds[i] = gumbel_bound(words[i]) + (at[i] - max) * inverse;
            hits |= bounds[i] >= limit ? 1 : 0;
        }
        if (hits == 0) continue;
        for (std::size_t i = 0; i < count; ++i) {
            if (!(bounds[i] >= limit)) continue;
            const auto id = static_cast<TokenId>(begin + i);
            const double value = static_cast<double>(at[i]) / temperature + gumbel(words[i]);
            if (value > best || (value == best && id < winner)) {
                best = value;
                winner = id;
            }
        }
    }
    return winner;
}

}  // namespace troupe::model
