// The counter-based generator and the noise made from it.
#include <catch2/catch.hpp>
#include <cmath>

#include "model/philox.hpp"

using namespace troupe::model;

TEST_CASE("Philox 4x32-10 gives its authors' known answers", "[model][philox]") {
    // Random123, examples/kat_vectors.
    CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) ==
          PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    CHECK(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
          PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("Each token has a random word of its own", "[model][philox]") {
    const DrawPlace place{.seed = 0x0123456789ABCDEF, .answer_index = 3, .position = 77};
    const PhiloxKey key{0x89ABCDEF, 0x01234567};
    CHECK(random_word(place, 0) == philox4x32({0, 77, 3, 0}, key)[0]);
    CHECK(random_word(place, 15) == philox4x32({15, 77, 3, 0}, key)[0]);
    CHECK(random_word(place, 16) == philox4x32({0, 77, 3, 0}, key)[1]);
    CHECK(random_word(place, 63) == philox4x32({15, 77, 3, 0}, key)[3]);
    CHECK(random_word(place, 64) == philox4x32({16, 77, 3, 0}, key)[0]);
    CHECK(random_word(place, 49151) == philox4x32({12287, 77, 3, 0}, key)[3]);
}

TEST_CASE("Gumbel noise stays inside the bounds that skipping relies on", "[model][philox]") {
    CHECK(gumbel(0xFFFFFFFFU) < kGumbelMax);
    CHECK(gumbel(0xFFFFFFFFU) > kGumbelMax - 1e-3);
    CHECK(gumbel(0U) > kGumbelMin);
    CHECK(kGumbelMax - kGumbelMin < 26.02);
    for (const std::uint32_t word : {0U, 1U, 12345U, 0x80000000U, 0xFFFFFFFEU, 0xFFFFFFFFU}) {
        const double u = (word + 0.5) / 4294967296.0;
        CHECK(gumbel(word) == Approx(-std::log(-std::log(u))).epsilon(1e-14));
    }
}
