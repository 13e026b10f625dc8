// One answer: tokens in, text and scores out.
#include "actors/generation.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "tests/actors/test_session_support.hpp"

using namespace troupe;
using namespace troupe::actors;
using troupe::test::ByteTokenizer;
using troupe::test::text_delivery;

namespace {

void feed(Generation& generation, std::string_view text) {
    const auto delivery = text_delivery(1, 1, generation.tokens(), text);
    generation.on(std::get<TokenRun>(delivery.events[0]), delivery);
}

Finished finished(FinishReason reason) {
    Finished event;
    event.reason = reason;
    return event;
}

std::string tokens_of(const std::vector<TokenScore>& scores) {
    std::string text;
    for (const TokenScore& score : scores)
        text += static_cast<char>(score.id);
    return text;
}

}  // namespace

TEST_CASE("Text grows in whole code points; a partial one at the end is dropped",
          "[actors][generation]") {
    const ByteTokenizer tokenizer;
    Generation generation(tokenizer, {});
    feed(generation, "a\xF0\x9F");
    CHECK(generation.text() == "a");
    feed(generation, "\x98\x8A!");
    CHECK(generation.text() == "a\xF0\x9F\x98\x8A!");
    feed(generation, "\xE6\xBC");
    CHECK(generation.on(finished(FinishReason::length)));
    CHECK(generation.text() == "a\xF0\x9F\x98\x8A!");
    CHECK(generation.tokens() == 8);
}

TEST_CASE("A stop string never shows, nor do its tokens' scores", "[actors][generation]") {
    const ByteTokenizer tokenizer;
    model::DecodingParams params;
    params.stop = {"DEFGHIJ"};
    params.logprobs = true;
    Generation generation(tokenizer, params);
    for (const char letter : std::string("ABCDEFGHIJKL")) {
        feed(generation, std::string(1, letter));
        CHECK(generation.text().find('D') == std::string::npos);
        CHECK(generation.scores().size() <= generation.text().size());
    }
    generation.on(finished(FinishReason::stop));
    CHECK(generation.text() == "ABC");
    CHECK(tokens_of(generation.scores()) == "ABC");
}

TEST_CASE("Text that might have become a stop string is given when the answer ends",
          "[actors][generation]") {
    const ByteTokenizer tokenizer;
    model::DecodingParams params;
    params.stop = {"\n\nUser:"};
    params.logprobs = true;
    Generation generation(tokenizer, params);
    feed(generation, "ok\n\nUs");
    CHECK(generation.text() == "ok");
    CHECK(tokens_of(generation.scores()) == "ok");
    generation.on(finished(FinishReason::stop));
    CHECK(generation.text() == "ok\n\nUs");
    CHECK(tokens_of(generation.scores()) == "ok\n\nUs");
}

TEST_CASE("Scores keep each token's rivals", "[actors][generation]") {
    const ByteTokenizer tokenizer;
    model::DecodingParams params;
    params.logprobs = true;
    Generation generation(tokenizer, params);
    feed(generation, "ab");
    REQUIRE(generation.scores().size() == 2);
    CHECK(generation.scores()[1].logprob == Approx(-0.98));
    REQUIRE(generation.scores()[1].top.size() == 1);
    CHECK(generation.scores()[1].top[0].id == 256);
}

TEST_CASE("An answer ends once", "[actors][generation]") {
    const ByteTokenizer tokenizer;
    Generation generation(tokenizer, {});
    CHECK_FALSE(generation.ended());
    CHECK(generation.on(finished(FinishReason::length)));
    CHECK_FALSE(generation.on(finished(FinishReason::stop)));
    CHECK_FALSE(generation.on(Rejected{}));
    CHECK_FALSE(generation.abandon());
    CHECK(generation.reason() == FinishReason::length);
    feed(generation, "late");
    CHECK(generation.text().empty());
}

TEST_CASE("Any split into runs gives the same text and scores", "[actors][generation][property]") {
    const ByteTokenizer tokenizer;
    model::DecodingParams params;
    params.stop = {"\xE6\xBC\xA2!", "aab"};
    params.logprobs = true;
    std::mt19937 random(20260801);
    for (int round = 0; round < 300; ++round) {
        std::string bytes;
        const char* const pieces[] = {"a", "b",   "aa", "\xE6\xBC\xA2", "\xF0\x9F\x98\x8A",
                                      "!", "\xFF"};
        for (int i = 0; i < 12; ++i)
            bytes += pieces[random() % std::size(pieces)];
        Generation at_once(tokenizer, params);
        feed(at_once, bytes);
        at_once.on(finished(FinishReason::length));
        Generation split(tokenizer, params);
        std::string seen;
        for (std::size_t begin = 0; begin < bytes.size();) {
            const std::size_t count = 1 + random() % 4;
            feed(split, std::string_view(bytes).substr(begin, count));
            begin += std::min(count, bytes.size() - begin);
            REQUIRE(split.text().starts_with(seen));
            seen = split.text();
        }
        split.on(finished(FinishReason::length));
        REQUIRE(split.text() == at_once.text());
        REQUIRE(tokens_of(split.scores()) == tokens_of(at_once.scores()));
    }
}
