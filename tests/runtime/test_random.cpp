#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <set>

#include "runtime/base/random.hpp"

using troupe::Random;

TEST_CASE("SplitMix64 gives the published numbers", "[runtime][random]") {
    // From the reference implementation (Vigna, splitmix64.c) with state 1234567.
    Random random(1234567);
    CHECK(random.next() == 6457827717110365317u);
    CHECK(random.next() == 3203168211198807973u);
    CHECK(random.next() == 9817491932198370423u);
    CHECK(random.next() == 4593380528125082431u);
    CHECK(random.next() == 16408922859458223821u);
}

TEST_CASE("below stays under its bound and reaches every value", "[runtime][random]") {
    Random random(1);
    std::array<int, 7> seen{};
    for (int i = 0; i < 7000; ++i)
        ++seen.at(random.below(7));
    CHECK(*std::ranges::min_element(seen) > 800);
    CHECK(random.below(1) == 0);
}

TEST_CASE("between includes both ends, over the whole range too", "[runtime][random]") {
    Random random(2);
    std::set<std::int64_t> seen;
    for (int i = 0; i < 100; ++i)
        seen.insert(random.between(-1, 1));
    CHECK(seen == std::set<std::int64_t>{-1, 0, 1});
    CHECK(random.between(5, 5) == 5);
    CHECK(random.between(INT64_MIN, INT64_MAX) != random.between(INT64_MIN, INT64_MAX));
}

TEST_CASE("a chance of 0 never comes and a chance of 1 always", "[runtime][random]") {
    Random random(3);
    int hits = 0;
    for (int i = 0; i < 1000; ++i) {
        REQUIRE_FALSE(random.chance(0.0));
        REQUIRE(random.chance(1.0));
        hits += random.chance(0.25) ? 1 : 0;
    }
    CHECK(hits > 180);
    CHECK(hits < 320);
}
