// A small seeded generator (SplitMix64, Steele et al. 2014): the same numbers on every platform and
// compiler, unlike the distributions of <random>. For simulation and tests, not for secrets.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/base/assert.hpp"

namespace troupe {

// The finaliser of SplitMix64: a bijection in which every input bit reaches every output bit.
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t value) noexcept {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

// 64-bit FNV-1a, continued from `hash`.
[[nodiscard]] constexpr std::uint64_t hash_bytes(
    std::string_view bytes, std::uint64_t hash = 0xcbf29ce484222325u) noexcept {
    for (const char byte : bytes) {
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
    }
    return hash;
}

// The top 53 bits as a number in [0, 1).
[[nodiscard]] constexpr double unit_interval(std::uint64_t bits) noexcept {
    return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

class Random {
 public:
    explicit constexpr Random(std::uint64_t seed) noexcept : state_(seed) {}

    constexpr std::uint64_t next() noexcept {
        state_ += 0x9e3779b97f4a7c15u;
        return mix_bits(state_);
    }

    // Uniform in [0, bound), without bias; bound > 0.
    constexpr std::uint64_t below(std::uint64_t bound) noexcept {
        TROUPE_ASSERT(bound > 0);
        const std::uint64_t biased = -bound % bound;  // 2^64 mod bound: the uneven low end
        std::uint64_t value = next();
        while (value < biased)
            value = next();
        return value % bound;
    }

    // Uniform in [low, high].
    constexpr std::int64_t between(std::int64_t low, std::int64_t high) noexcept {
        TROUPE_ASSERT(low <= high);
        const auto span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
        const std::uint64_t offset = span == UINT64_MAX ? next() : below(span + 1);
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + offset);
    }

    constexpr double unit() noexcept { return unit_interval(next()); }
    constexpr bool chance(double probability) noexcept { return unit() < probability; }

 private:
    std::uint64_t state_;
};

}  // namespace troupe
