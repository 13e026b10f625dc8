// Where a text has stood before, and how it went on.
#include <catch2/catch.hpp>
#include <random>

#include "model/prompt_lookup.hpp"

using namespace troupe;
using model::PromptLookup;
using Tokens = std::vector<model::TokenId>;

namespace {

Tokens proposed(const Tokens& text, std::uint32_t count) {
    PromptLookup lookup;
    lookup.extend(text);
    Tokens out;
    if (lookup.match_length() > 0) lookup.propose(text, count, out);
    return out;
}

// The longest suffix that stands in `text` once more, up to what the index compares.
std::uint32_t longest_match(const Tokens& text) {
    std::uint32_t best = 0;
    for (std::size_t place = 1; place < text.size(); ++place) {
        std::uint32_t length = 0;
        while (length < place && text[place - 1 - length] == text[text.size() - 1 - length])
            ++length;
        best = std::max(best, length);
    }
    return best;
}

}  // namespace

TEST_CASE("three tokens that have been before are followed by what followed them", "[lookup]") {
    CHECK(proposed({1, 2, 3, 4, 5, 9, 1, 2, 3}, 2) == Tokens{4, 5});
    CHECK(proposed({1, 2, 3, 4, 5, 9, 8, 2, 3}, 2).empty());
    CHECK(proposed({}, 2).empty());
    CHECK(proposed({1, 2, 3}, 2).empty());
}

TEST_CASE("of several places the longest match counts, then the latest", "[lookup]") {
    CHECK(proposed({7, 1, 2, 3, 4, 0, 8, 1, 2, 3, 5, 0, 7, 1, 2, 3}, 1) == Tokens{4});
    CHECK(proposed({7, 1, 2, 3, 4, 0, 8, 1, 2, 3, 5, 0, 6, 1, 2, 3}, 1) == Tokens{5});
}

TEST_CASE("a loop is continued as a loop", "[lookup]") {
    CHECK(proposed({9, 1, 2, 1, 2, 1}, 5) == Tokens{2, 1, 2, 1, 2});
    CHECK(proposed({4, 4, 4, 4}, 6) == Tokens{4, 4, 4, 4, 4, 4});
}

TEST_CASE("a match grows with the text, and ends where the text turns away", "[lookup]") {
    Tokens text{1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3};
    PromptLookup lookup;
    lookup.extend(text);
    CHECK(lookup.match_length() == 3);
    text.push_back(4);
    lookup.extend(text);
    CHECK(lookup.match_length() == 4);
    lookup.extend({text.data(), 5});  // of which it knows everything
    CHECK(lookup.match_length() == 4);
    text.push_back(9);
    lookup.extend(text);
    CHECK(lookup.match_length() == 0);
}

TEST_CASE("fed in any pieces the index finds the same, and what there is to find", "[lookup]") {
    std::mt19937 random(5);
    for (int round = 0; round < 40; ++round) {
        const auto letters = 2 + static_cast<unsigned>(round);
        Tokens text;
        PromptLookup by_token, by_piece;
        for (int i = 0; i < 700; ++i) {
            text.push_back(static_cast<model::TokenId>(random() % letters));
            by_token.extend(text);
            if (random() % 20 == 0) by_piece.extend(text);
            const std::uint32_t longest = longest_match(text);
            REQUIRE((by_token.match_length() > 0) == (longest >= PromptLookup::kMatchMin));
            REQUIRE(by_token.match_length() <= longest);
        }
        by_piece.extend(text);
        REQUIRE(by_piece.match_length() == by_token.match_length());
        if (by_token.match_length() == 0) continue;
        Tokens one, other;
        by_token.propose(text, 8, one);
        by_piece.propose(text, 8, other);
        REQUIRE(one == other);
    }
}
