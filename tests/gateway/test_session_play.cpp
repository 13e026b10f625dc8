// What the fuzzers play with, without a fuzzer: their kept inputs, and each of them a little wrong.
#include <catch2/catch.hpp>
#include <random>

#include "tests/gateway/session_play.hpp"
#include "tests/support/damaged_inputs.hpp"

using namespace troupe::test;

namespace {

void play_all(const char* name, void (*play)(std::string_view)) {
    const auto inputs = corpus(name);
    REQUIRE(inputs.size() >= 10);
    for (const std::string& input : inputs) {
        CAPTURE(input);
        CHECK_NOTHROW(play(input));
    }
    std::mt19937_64 random(7);
    for (int round = 0; round < 4000; ++round) {
        const std::string input = damaged(inputs, random);
        CAPTURE(round, input);
        CHECK_NOTHROW(play(input));
    }
}

}  // namespace

TEST_CASE("Whatever a client posts is refused or answered in JSON", "[gateway][fuzz]") {
    play_all("http_exchange", play_http);
}

TEST_CASE("Whatever a socket says is refused or answered in JSON", "[gateway][fuzz]") {
    play_all("websocket", play_websocket);
}
