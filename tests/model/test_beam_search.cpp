// Beam search against transformers (tests/data/beam_search), and what that leaves open.
#include "model/beam_search.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <vector>

#include "model/sampler.hpp"
#include "runtime/base/random.hpp"
#include "tests/support/json_file.hpp"
#include "tests/support/paths.hpp"

namespace troupe::model {
namespace {

using Tokens = std::vector<TokenId>;
using Rows = std::vector<std::vector<TokenLogprob>>;
using Move = BeamSearch::Move;

Tokens ids_of(const boost::json::value& list) {
    return boost::json::value_to<Tokens>(list);
}

DecodingParams width_of(std::int32_t width, double length_penalty = 1) {
    DecodingParams params;
    params.beam_width = width;
    params.length_penalty = length_penalty;
    return params;
}

// The tables of tests/tools/make_beam_reference.py: scores after token `last` at `place`.
std::vector<float> table_row(std::uint64_t seed, std::uint64_t place, TokenId last,
                             std::size_t vocabulary, const Tokens& ends) {
    std::vector<float> row(vocabulary);
    for (std::uint64_t id = 0; id < vocabulary; ++id) {
        const auto key =
            (seed << 48U) + (place << 32U) + (static_cast<std::uint64_t>(last) << 16U) + id;
        row[id] = static_cast<float>(mix_bits(key) % (1U << 20U)) / (1U << 17U);
        if (std::ranges::count(ends, static_cast<TokenId>(id)) > 0) row[id] += 2;
    }
    return row;
}

// A row's best tokens, as a backend gives them.
std::vector<TokenLogprob> best_of(std::vector<float> row, std::uint32_t count) {
    DecodingParams params;
    params.temperature = 0;
    params.logprobs = true;
    params.top_logprobs = static_cast<std::int32_t>(count);
    SamplerScratch scratch;
    std::vector<TokenLogprob> top;
    REQUIRE(sample(row, {.params = params, .end_tokens = {}}, scratch, top));
    return top;
}

// Searches with `row_after(place, last token)` giving the scores.
template <class RowAfter>
std::vector<BeamSearch::Answer> search(BeamSearch& beams, TokenId prompt, RowAfter row_after) {
    Tokens last{prompt};
    for (std::uint64_t place = 0; !beams.done(); ++place) {
        Rows rows;
        rows.reserve(last.size());
        for (const TokenId token : last)
            rows.push_back(best_of(row_after(place, token), beams.candidates_needed()));
        beams.advance(rows);
        last.clear();
        for (const Move& move : beams.moves())
            last.push_back(move.token);
    }
    return beams.answers(std::numeric_limits<std::size_t>::max());
}

TEST_CASE("beam search gives the answers and scores of transformers", "[model][beams]") {
    const auto reference = test::read_json(test::test_data("beam_search/tables.json"));
    std::size_t cases = 0;
    for (const auto& entry : reference.at("cases").as_array()) {
        CAPTURE(boost::json::serialize(entry));
        const Tokens ends = ids_of(entry.at("ends"));
        const auto seed = entry.at("seed").to_number<std::uint64_t>();
        const auto vocabulary = entry.at("vocabulary").to_number<std::size_t>();
        BeamSearch beams(width_of(entry.at("beam_width").to_number<std::int32_t>(),
                                  entry.at("length_penalty").to_number<double>()),
                         ends, entry.at("max_tokens").to_number<std::uint32_t>());
        const auto found = search(beams, ids_of(entry.at("prompt")).front(),
                                  [&](std::uint64_t place, TokenId last) {
                                      return table_row(seed, place, last, vocabulary, ends);
                                  });
        const auto& expected = entry.at("answers").as_array();
        REQUIRE(found.size() == expected.size());
        for (std::size_t i = 0; i < found.size(); ++i) {
            CHECK(found[i].tokens == ids_of(expected[i].at("tokens")));
            CHECK(found[i].score ==
                  Approx(expected[i].at("score").to_number<double>()).epsilon(1e-5));
            CHECK(found[i].logprobs.size() == found[i].tokens.size());
        }
        ++cases;
    }
    REQUIRE(cases == 216);
}

TEST_CASE("equal sums go to the lower beam, then to the lower token", "[model][beams]") {
    BeamSearch beams(width_of(3), Tokens{0}, 10);
    beams.advance(Rows{{{4, -1.0F}, {7, -1.0F}, {9, -2.0F}}});
    REQUIRE(std::ranges::equal(beams.moves(), std::vector<Move>{{0, 4}, {0, 7}, {0, 9}}));
    beams.advance(Rows{{{5, -1.0F}, {6, -3.0F}}, {{3, -1.0F}, {8, -1.0F}}, {{2, -1.0F}}});
    REQUIRE(std::ranges::equal(beams.moves(), std::vector<Move>{{0, 5}, {1, 3}, {1, 8}}));
}

TEST_CASE("an end below the best k is not an answer, and the beams go on without it",
          "[model][beams]") {
    BeamSearch beams(width_of(2), Tokens{0}, 10);
    beams.advance(Rows{{{1, -1.0F}, {2, -1.5F}, {0, -2.0F}}});
    REQUIRE(std::ranges::equal(beams.moves(), std::vector<Move>{{0, 1}, {0, 2}}));
    beams.advance(Rows{{{0, -0.1F}, {3, -3.0F}}, {{0, -0.1F}, {3, -3.0F}}});
    REQUIRE(std::ranges::equal(beams.moves(), std::vector<Move>{}));  // both have ended: no better
    REQUIRE(beams.done());
    const auto found = beams.answers(5);
    REQUIRE(found.size() == 2);
    REQUIRE(found[0].tokens == Tokens{1, 0});
    REQUIRE(found[0].score == Approx(-1.1 / 2));
    REQUIRE(found[1].tokens == Tokens{2, 0});
    REQUIRE(beams.answers(1).size() == 1);
}

TEST_CASE("end tokens are passed over before min_tokens, and for ever with ignore_eos",
          "[model][beams]") {
    DecodingParams params = width_of(2);
    const bool ignore = GENERATE(true, false);
    params.ignore_eos = ignore;
    params.min_tokens = ignore ? 0 : 1;
    BeamSearch beams(params, Tokens{0}, 3);
    REQUIRE(beams.candidates_needed() == 3);
    beams.advance(Rows{{{0, -0.1F}, {1, -3.0F}, {2, -4.0F}}});
    REQUIRE(std::ranges::equal(beams.moves(), std::vector<Move>{{0, 1}, {0, 2}}));
    beams.advance(Rows{{{0, -0.1F}, {1, -3.0F}}, {{0, -0.1F}, {1, -3.0F}}});
    REQUIRE(beams.done() == !ignore);
    if (ignore) {
        beams.advance(Rows{{{0, -0.1F}, {1, -3.0F}, {2, -5.0F}}, {{0, -0.1F}, {1, -3.0F}}});
        REQUIRE(beams.done());
        REQUIRE(beams.answers(1).front().tokens == Tokens{1, 1, 1});
    }
}

TEST_CASE("a stop token ends an answer but is an ordinary token before min_tokens",
          "[model][beams]") {
    DecodingParams params = width_of(2);
    params.stop_token_ids = {5};
    params.min_tokens = 1;
    BeamSearch beams(params, Tokens{0}, 10);
    beams.advance(Rows{{{5, -0.1F}, {1, -3.0F}}});
    REQUIRE(std::ranges::equal(beams.moves(), std::vector<Move>{{0, 5}, {0, 1}}));
    beams.advance(Rows{{{5, -0.1F}, {1, -9.0F}}, {{5, -0.1F}, {1, -9.0F}}});
    REQUIRE(beams.done());
    REQUIRE(beams.answers(2)[0].tokens == Tokens{5, 5});
    REQUIRE(beams.answers(2)[1].tokens == Tokens{1, 5});
}

TEST_CASE("a vocabulary smaller than the width gives the beams there are", "[model][beams]") {
    BeamSearch beams(width_of(16), Tokens{0}, 2);
    const float banned = -std::numeric_limits<float>::infinity();
    beams.advance(Rows{{{1, -1.0F}, {2, -1.0F}, {3, banned}}});
    REQUIRE(beams.moves().size() == 2);
    beams.advance(Rows{{{1, -1.0F}, {2, -2.0F}}, {{1, -1.5F}, {2, -2.0F}}});
    REQUIRE(beams.done());
    REQUIRE(beams.answers(16).size() == 4);
}

TEST_CASE("beams refuse what would change scores or draw, and name it", "[model][beams]") {
    DecodingParams params = width_of(4);
    params.temperature = 0;
    params.max_tokens = 5;
    params.stop = {"x"};
    REQUIRE(validate(params, 10).has_value());
    params.temperature = 0.7;
    REQUIRE(validate(params, 10).error().message ==
            "temperature is 0.7, but with beam_width it must be 0 or 1");
    REQUIRE(find_beam_conflict(params)->field == "temperature");
    params.beam_width = 1;
    REQUIRE(validate(params, 10).has_value());
    params.beam_width = 17;
    REQUIRE(validate(params, 10).error().message ==
            "beam_width is 17, but must be between 1 and 16");
    const auto refused = [](auto change) {
        DecodingParams p = width_of(2);
        change(p);
        const auto clash = find_beam_conflict(p);
        return clash ? clash->field : std::string();
    };
    CHECK(refused([](auto& p) { p.top_k = 5; }) == "top_k");
    CHECK(refused([](auto& p) { p.top_p = 0.9; }) == "top_p");
    CHECK(refused([](auto& p) { p.min_p = 0.1; }) == "min_p");
    CHECK(refused([](auto& p) { p.typical_p = 0.5; }) == "typical_p");
    CHECK(refused([](auto& p) { p.repetition_penalty = 1.1; }) == "repetition_penalty");
    CHECK(refused([](auto& p) { p.frequency_penalty = 1; }) == "frequency_penalty");
    CHECK(refused([](auto& p) { p.presence_penalty = 1; }) == "presence_penalty");
    CHECK(refused([](auto& p) { p.top_logprobs = 2; }) == "top_logprobs");
    CHECK(refused([](auto& p) { p.logit_bias = {{1, 2.0F}}; }) == "logit_bias");
    CHECK(refused([](auto& p) { p.samplers = {SamplerStep::top_k}; }) == "samplers");
    CHECK(refused([](auto& p) { p.logprobs = true; }).empty());
}

}  // namespace
}  // namespace troupe::model
