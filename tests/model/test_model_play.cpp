// What the fuzzers play with, without a fuzzer: their kept inputs, and each of them a little wrong.
#include <catch2/catch.hpp>
#include <random>

#include "tests/model/model_play.hpp"
#include "tests/support/damaged_inputs.hpp"

namespace troupe::test {
namespace {

void play_all(const char* name, void (*play)(std::string_view), int rounds) {
    const auto inputs = corpus(name);
    REQUIRE_FALSE(inputs.empty());
    for (const std::string& input : inputs)
        CHECK_NOTHROW(play(input));
    std::mt19937_64 random(7);
    for (int round = 0; round < rounds; ++round) {
        const std::string input = damaged(inputs, random);
        CAPTURE(round, input);
        CHECK_NOTHROW(play(input));
    }
}

}  // namespace

TEST_CASE("Whatever a safetensors file holds is refused or read", "[model][fuzz]") {
    play_all("safetensors", play_safetensors, 4000);
}

TEST_CASE("Whatever a config.json holds is refused or read", "[model][fuzz]") {
    play_all("config_json", play_config_json, 2000);
}

TEST_CASE("Whatever a tokenizer.json holds is refused or takes any text", "[model][fuzz]") {
    play_all("tokenizer_json", play_tokenizer_json, 500);
}

TEST_CASE("Whatever a chat template holds is refused or rendered", "[model][fuzz]") {
    play_all("template", play_template, 500);
}

}  // namespace troupe::test
