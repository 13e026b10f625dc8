// Requests and tokens a minute, with the test as the clock.
#include "actors/rate_limits.hpp"

#include <catch2/catch.hpp>

using namespace troupe;
using namespace troupe::actors;

namespace {

Principal principal(std::uint32_t requests, std::uint32_t tokens, std::uint64_t id = 1) {
    return {.id = id, .weight = 1, .requests_per_minute = requests, .tokens_per_minute = tokens};
}

runtime::TimePoint at(std::int64_t ms) {
    return runtime::TimePoint(std::chrono::milliseconds(ms));
}

}  // namespace

TEST_CASE("A principal has so many requests a minute, and gets them back evenly", "[rates]") {
    RateLimits limits;
    const Principal alice = principal(6, 0);
    for (int i = 0; i < 6; ++i)
        CHECK_FALSE(limits.take(alice, 1, at(0)));
    CHECK(limits.take(alice, 1, at(0)) == 10'000);
    CHECK(limits.take(alice, 1, at(4'000)) == 6'000);
    CHECK_FALSE(limits.take(alice, 1, at(10'000)));
    CHECK(limits.take(alice, 1, at(10'000)) == 10'000);
    CHECK_FALSE(limits.take(principal(6, 0, 2), 6, at(10'000)));  // somebody else's are untouched
    CHECK_FALSE(limits.take(alice, 6, at(1'000'000)));            // a minute's worth at most
    CHECK(limits.take(alice, 1, at(1'000'000)).has_value());
}

TEST_CASE("Tokens are charged afterwards, and an overdraft is waited for", "[rates]") {
    RateLimits limits;
    const Principal alice = principal(0, 600);
    CHECK_FALSE(limits.take(alice, 1, at(0)));
    limits.charge(alice, 900, at(0));
    CHECK(limits.take(alice, 1, at(0)) == 30'100);
    CHECK_FALSE(limits.take(alice, 1, at(30'100)));
}

TEST_CASE("A call of more requests than the limit needs a full bucket", "[rates]") {
    RateLimits limits;
    const Principal alice = principal(6, 0);
    CHECK_FALSE(limits.take(alice, 12, at(0)));
    CHECK(limits.take(alice, 1, at(0)) == 70'000);
}

TEST_CASE("What is left is told as limit, remaining and reset", "[rates]") {
    RateLimits limits;
    const Principal alice = principal(60, 600);
    CHECK_FALSE(limits.take(alice, 1, at(0)));
    limits.charge(alice, 1000, at(0));
    const auto state = limits.state(alice, at(0));
    CHECK(state.requests.limit == 60);
    CHECK(state.requests.remaining == 59);
    CHECK(state.requests.reset_ms == 1'000);
    CHECK(state.tokens.remaining == 0);
    CHECK(state.tokens.reset_ms == 100'000);
    CHECK(limits.state(principal(0, 0, 3), at(0)).requests.limit == 0);
}

TEST_CASE("A principal without limits asks as it likes", "[rates]") {
    RateLimits limits;
    CHECK_FALSE(limits.take(principal(0, 0), 1'000'000, at(0)));
}
