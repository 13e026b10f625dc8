// Philox 4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3" (SC11), and the noise that draws tokens. No state: a number is a function of where it
// is used.
#pragma once

#include <array>
#include <cstdint>

#include "model/math.hpp"
#include "model/token.hpp"

namespace troupe::model {

using PhiloxWords = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

inline constexpr std::uint32_t kPhiloxMultiplier0 = 0xD2511F53;
inline constexpr std::uint32_t kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr std::uint32_t kPhiloxWeyl0 = 0x9E3779B9;
inline constexpr std::uint32_t kPhiloxWeyl1 = 0xBB67AE85;
inline constexpr int kPhiloxRounds = 10;

[[nodiscard]] constexpr PhiloxWords philox4x32(PhiloxWords counter, PhiloxKey key) {
    for (int round = 0; round < kPhiloxRounds; ++round) {
        const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * counter[0];
        const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * counter[2];
        counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
                   static_cast<std::uint32_t>(product1),
                   static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
                   static_cast<std::uint32_t>(product0)};
        key[0] += kPhiloxWeyl0;
        key[1] += kPhiloxWeyl1;
    }
    return counter;
}

// Which draw it is: the key is the seed, the counter is (token, position, answer index, 0).
struct DrawPlace {
    std::uint64_t seed = 0;
    std::uint32_t answer_index = 0;
    std::uint32_t position = 0;  // in the sequence, prompt included, of the token that is drawn

    [[nodiscard]] constexpr PhiloxKey key() const {
        return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
    }
};

// Tokens share counters so that one Philox block serves four of them and vectors of 16 stay
// together: of the 64 tokens from 64 g on, token i takes word (i / 16) % 4 of counter 16 g + i
// % 16.
[[nodiscard]] constexpr std::uint32_t random_word(const DrawPlace& place, TokenId token) {
    const auto id = static_cast<std::uint32_t>(token);
    const PhiloxWords counter{id / 64 * 16 + id % 16, place.position, place.answer_index, 0};
    return philox4x32(counter, place.key())[id / 16 % 4];
}

// The noise of a word: -ln(-ln u), u = (word + 1/2) / 2^32. Between -3.14 and 22.8739.
inline constexpr double kGumbelMax = 22.874;
inline constexpr double kGumbelMin = -3.14;

[[nodiscard]] constexpr double gumbel(std::uint32_t word) {
    return -math::log(-math::log((static_cast<double>(word) + 0.5) * 0x1p-32));
}

[[nodiscard]] constexpr double gumbel(const DrawPlace& place, TokenId token) {
    return gumbel(random_word(place, token));
}

}  // namespace troupe::model
