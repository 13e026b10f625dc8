// The fuzzers' kept inputs, and each of them a little wrong, for playing without a fuzzer. Tests
// only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

inline std::vector<std::string> corpus(const char* name) {
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
inline std::string damaged(const std::vector<std::string>& inputs, std::mt19937_64& random) {
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

}  // namespace troupe::test
