// What the fuzzers play with, without a fuzzer: their kept inputs, and each of them a little wrong.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/gateway/session_play.hpp"

using namespace troupe::test;

namespace {

std::vector<std::string> corpus(const char* name) {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(
             std::filesystem::path(TROUPE_SOURCE_DIR) / "tests/fuzz/corpus" / name))
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> inputs;
    for (const auto& path : paths) {
        std::ifstream file(path, std::ios::binary);
        inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
    return inputs;
}

// Bytes flipped, put in, taken out and said twice; parts of another input; numbers out of range.
std::string damaged(const std::vector<std::string>& inputs, std::mt19937_64& random) {
    constexpr std::array<std::string_view, 14> kWords{
        "\"",      "{",       "}",    "[",  "]",     ",",
        "\\u0000", "\\ud800", "\xff", "-1", "1e999", "18446744073709551616",
        "null",    "true"};
    const auto below = [&random](std::size_t n) { return n == 0 ? 0 : random() % n; };
    std::string text = inputs[below(inputs.size())];
    for (std::size_t change = 1 + below(6); change > 0; --change) {
        const std::size_t at = below(text.size() + 1);
        const std::size_t length = below(std::min<std::size_t>(text.size() - at, 24) + 1);
        switch (below(5)) {
            case 0:
                if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1U << below(8)));
                break;
            case 1:
                text.erase(at, length);
                break;
            case 2:
                text.insert(at, text.substr(at, length));
                break;
            case 3:
                text.replace(at, length, kWords[below(kWords.size())]);
                break;
            default: {
                const std::string& other = inputs[below(inputs.size())];
                const std::size_t from = below(other.size());
                text.insert(at, other.substr(from, below(48)));
            }
        }
    }
    return text;
}

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
