// The sampler against reference distributions in float64 (../shared/data/7-smollm2/sampling.json):
// what it keeps, with what probabilities, and that its draws come from exactly that.
#include <algorithm>
#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "model/sampler.hpp"
#include "tests/support/json_file.hpp"
#include "tests/support/npy.hpp"
#include "tests/support/paths.hpp"

using namespace troupe;
using namespace troupe::model;
namespace json = boost::json;

namespace {

const std::string kCases = "7-smollm2/sampling.json";

struct Vector {
    std::string name;
    std::vector<float> row;
    TokenCounts counts;
};

std::vector<Vector> read_vectors(const json::value& file) {
    const auto last = test::read_npy(test::shared_data("7-smollm2/logits-last.npy"));
    std::vector<Vector> vectors;
    for (const json::value& v : file.at("vectors").as_array()) {
        Vector& vector = vectors.emplace_back();
        vector.name = std::string{v.at("name").as_string()};
        if (const json::value* index = v.as_object().if_contains("logits_last_row")) {
            const auto row = last.row(index->to_number<std::size_t>());
            vector.row.assign(row.begin(), row.end());
        } else {
            for (const json::value& z : v.at("logits").as_array()) {
                vector.row.push_back(z.is_null() ? -std::numeric_limits<float>::infinity()
                                                 : z.to_number<float>());
            }
        }
        // In these cases the history counts for all three penalties.
        for (const json::value& id : v.at("history").as_array()) {
            vector.counts.add_answer(id.to_number<TokenId>());
        }
    }
    return vectors;
}

DecodingParams params_of(const json::object& set) {
    DecodingParams params;
    for (const auto& [name, value] : set) {
        const auto number = value.to_number<double>();
        if (name == "temperature") params.temperature = number;
        if (name == "top_k") params.top_k = static_cast<std::int32_t>(number);
        if (name == "top_p") params.top_p = number;
        if (name == "min_p") params.min_p = number;
        if (name == "repetition_penalty") params.repetition_penalty = number;
        if (name == "presence_penalty") params.presence_penalty = number;
        if (name == "frequency_penalty") params.frequency_penalty = number;
    }
    return params;
}

SamplingContext context_of(const DecodingParams& params, const Vector& vector,
                           std::uint32_t position = 0) {
    return {.params = params, .counts = &vector.counts, .end_tokens = {}, .position = position};
}

// The draw by its definition, from a distribution that is already known.
TokenId draw_by_definition(const std::vector<TokenProbability>& tokens, const DrawPlace& place) {
    TokenId winner = -1;
    double best = -std::numeric_limits<double>::infinity();
    for (const TokenProbability& token : tokens) {
        if (token.probability == 0) continue;  // exp underflowed: more than 26 below the best
        const double value = std::log(token.probability) + gumbel(place, token.id);
        if (value > best) {
            best = value;
            winner = token.id;
        }
    }
    return winner;
}

}  // namespace

TEST_CASE("Every reference distribution is met", "[model][sampler]") {
    if (!test::have_shared(kCases)) return;
    const json::value file = test::read_json(test::shared_data(kCases));
    const auto vectors = read_vectors(file);
    std::size_t compared = 0;
    std::size_t near_a_cut = 0;
    for (const json::value& c : file.at("cases").as_array()) {
        const Vector& vector = vectors.at(c.at("vector").to_number<std::size_t>());
        const DecodingParams params = params_of(c.at("set").as_object());
        INFO(vector.name << " " << c.at("set"));
        const auto got = distribution(vector.row, context_of(params, vector));
        REQUIRE(got.has_value());

        const json::value* margin = c.as_object().if_contains("margin");
        if (margin != nullptr && margin->to_number<double>() < 1e-5) {
            ++near_a_cut;  // float32 scores may rightly cut elsewhere
            continue;
        }
        ++compared;
        REQUIRE(got->size() == c.at("size").to_number<std::size_t>());
        const json::array& ids = c.at("ids").as_array();
        const json::array& probabilities = c.at("probs").as_array();
        std::size_t equal = 0;
        double worst = 0;
        for (std::size_t i = 0; i < ids.size(); ++i) {
            const double want = probabilities[i].to_number<double>();
            equal += (*got)[i].id == ids[i].to_number<TokenId>() ? 1 : 0;
            worst = std::max(worst, std::abs((*got)[i].probability - want));
        }
        CHECK(equal == ids.size());
        CHECK(worst < 1e-5);
    }
    CHECK(compared + near_a_cut == 820);
    CHECK(near_a_cut < 30);
}

TEST_CASE("Draws come from exactly the reference distributions", "[model][sampler]") {
    if (!test::have_shared(kCases)) return;
    const json::value file = test::read_json(test::shared_data(kCases));
    const auto vectors = read_vectors(file);
    SamplerScratch scratch;
    std::vector<TokenLogprob> top;
    for (const json::value& c : file.at("cases").as_array()) {
        const Vector& vector = vectors.at(c.at("vector").to_number<std::size_t>());
        const json::value* margin = c.as_object().if_contains("margin");
        if (margin != nullptr && margin->to_number<double>() < 1e-5) continue;
        DecodingParams params = params_of(c.at("set").as_object());
        params.seed = 7;
        INFO(vector.name << " " << c.at("set"));
        const auto tokens = distribution(vector.row, context_of(params, vector));
        REQUIRE(tokens.has_value());
        const std::uint32_t draws = vector.row.size() > 1000 ? 5 : 40;
        for (std::uint32_t position = 0; position < draws; ++position) {
            auto row = vector.row;
            const auto got = sample(row, context_of(params, vector, position), scratch, top);
            REQUIRE(got.has_value());
            const DrawPlace place{.seed = 7, .answer_index = 0, .position = position};
            REQUIRE(got->id == draw_by_definition(*tokens, place));
        }
    }
    CHECK(top.empty());
}

TEST_CASE("Steps in an order of the request's own draw as the usual order where they should",
          "[model][sampler]") {
    if (!test::have_shared(kCases)) return;
    const auto vectors = read_vectors(test::read_json(test::shared_data(kCases)));
    SamplerScratch scratch;
    std::vector<TokenLogprob> top;
    DecodingParams usual;
    usual.temperature = 0.8;
    usual.top_k = 40;
    usual.min_p = 0.02;
    usual.repetition_penalty = 1.1;
    DecodingParams own = usual;  // top-k commutes with temperature, so this changes nothing
    own.samplers = {SamplerStep::penalties, SamplerStep::top_k, SamplerStep::temperature,
                    SamplerStep::min_p};
    for (const Vector& vector : vectors) {
        for (std::uint32_t position = 0; position < 20; ++position) {
            auto row = vector.row;
            const auto a = sample(row, context_of(usual, vector, position), scratch, top);
            row = vector.row;
            const auto b = sample(row, context_of(own, vector, position), scratch, top);
            REQUIRE(a.has_value());
            REQUIRE(b.has_value());
            CHECK(a->id == b->id);
        }
    }
}
