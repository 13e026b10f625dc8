// The decoding rules one by one, on rows small enough to check by hand.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <random>

#include "model/sampler.hpp"

using namespace troupe::model;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> logs_of(const std::vector<double>& probabilities) {
    std::vector<float> row;
    for (const double p : probabilities)
        row.push_back(static_cast<float>(std::log(p)));
    return row;
}

const std::vector<float> kFour = logs_of({0.50, 0.30, 0.15, 0.05});

// Draws with scratch memory of its own.
struct Drawer {
    SamplerScratch scratch;
    std::vector<TokenLogprob> top;

    std::optional<SampledToken> operator()(std::vector<float> row, const SamplingContext& context) {
        top.clear();
        return sample(row, context, scratch, top);
    }
    TokenId id(const std::vector<float>& row, const SamplingContext& context) {
        const auto drawn = (*this)(row, context);
        REQUIRE(drawn.has_value());
        return drawn->id;
    }
};

SamplingContext with(const DecodingParams& params, std::uint32_t position = 0) {
    return {.params = params, .end_tokens = {}, .position = position};
}

std::vector<TokenId> kept(const std::vector<float>& row, const SamplingContext& context) {
    const auto tokens = distribution(row, context);
    REQUIRE(tokens.has_value());
    std::vector<TokenId> ids;
    for (const TokenProbability& token : *tokens)
        ids.push_back(token.id);
    return ids;
}

// The chi-square statistic of `draws` draws at positions 0, 1, ... against `expected`.
double chi_square(const std::vector<float>& row, const DecodingParams& params,
                  const std::vector<double>& expected, std::uint32_t draws) {
    Drawer drawer;
    std::vector<double> counts(row.size());
    for (std::uint32_t position = 0; position < draws; ++position) {
        ++counts[static_cast<std::size_t>(drawer.id(row, with(params, position)))];
    }
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
        if (expected[i] == 0) {
            REQUIRE(counts[i] == 0);
            continue;
        }
        const double want = expected[i] * draws;
        sum += (counts[i] - want) * (counts[i] - want) / want;
    }
    return sum;
}

}  // namespace

TEST_CASE("Draws follow the softmax", "[model][sampler]") {
    // 99.9 % of honest draws stay below 16.27 with three degrees of freedom; the seeds are fixed.
    for (const std::uint64_t seed : {0ULL, 1ULL, 42ULL, ~0ULL, 0x123456789ABCDEFULL}) {
        DecodingParams params;
        params.seed = seed;
        CHECK(chi_square(kFour, params, {0.50, 0.30, 0.15, 0.05}, 20'000) < 16.27);
    }
}

TEST_CASE("Draws follow the softmax at other temperatures and after truncation",
          "[model][sampler]") {
    DecodingParams params;
    SECTION("temperature") {
        params.temperature = 0.5;  // probabilities squared and renormalised: sum 0.365
        CHECK(chi_square(kFour, params,
                         {0.25 / 0.365, 0.09 / 0.365, 0.0225 / 0.365, 0.0025 / 0.365},
                         20'000) < 16.27);
    }
    SECTION("top_k") {
        params.top_k = 2;
        CHECK(chi_square(kFour, params, {0.625, 0.375, 0, 0}, 20'000) < 10.83);
    }
    SECTION("top_p") {
        params.top_p = 0.8;
        CHECK(chi_square(kFour, params, {0.625, 0.375, 0, 0}, 20'000) < 10.83);
    }
    SECTION("min_p") {
        params.min_p = 0.2;
        CHECK(chi_square(kFour, params, {0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0}, 20'000) < 13.82);
    }
}

TEST_CASE("A draw depends on seed, answer and position and on nothing else", "[model][sampler]") {
    const std::vector<float> row(1000, 0.5F);
    DecodingParams params;
    Drawer drawer;
    const auto draws = [&](std::uint64_t seed, std::uint32_t answer) {
        params.seed = seed;
        std::vector<TokenId> ids;
        for (std::uint32_t position = 0; position < 16; ++position) {
            auto context = with(params, position);
            context.answer_index = answer;
            ids.push_back(drawer.id(row, context));
        }
        return ids;
    };
    CHECK(draws(0, 0) == draws(0, 0));  // seed 0 is a seed
    CHECK(draws(1, 0) == draws(1, 0));
    CHECK(draws(0, 0) != draws(1, 0));
    CHECK(draws(0, 0) != draws(std::uint64_t{1} << 32, 0));
    for (std::uint32_t answer = 1; answer < 8; ++answer)
        CHECK(draws(1, 0) != draws(1, answer));
}

TEST_CASE("Temperature 0 and nearly 0 are greedy, ties to the lower id", "[model][sampler]") {
    const std::vector<float> row{1, 3, 2, 3, 3};
    DecodingParams params;
    params.temperature = GENERATE(0.0, 1e-8, 0.9e-5);
    params.top_p = 0.5;
    params.min_p = 0.5;
    params.top_k = 3;
    Drawer drawer;
    for (std::uint32_t position = 0; position < 20; ++position) {
        CHECK(drawer.id(row, with(params, position)) == 1);
    }
    CHECK(kept(row, with(params)) == std::vector<TokenId>{1});
}

TEST_CASE("Top-p keeps the shortest leading part that reaches p", "[model][sampler]") {
    DecodingParams params;
    const auto kept_at = [&](double top_p) {
        params.top_p = top_p;
        return kept(kFour, with(params)).size();
    };
    CHECK(kept_at(0) == 1);
    CHECK(kept_at(0.1) == 1);
    CHECK(kept_at(0.5) == 1);
    CHECK(kept_at(0.51) == 2);
    CHECK(kept_at(0.80) == 2);
    CHECK(kept_at(0.81) == 3);
    CHECK(kept_at(0.90) == 3);
    CHECK(kept_at(0.96) == 4);
    CHECK(kept_at(1) == 4);

    params.top_p = 0.8;
    const auto tokens = distribution(kFour, with(params));
    CHECK((*tokens)[0].probability == Approx(0.625).epsilon(1e-6));
    CHECK((*tokens)[1].probability == Approx(0.375).epsilon(1e-6));
}

TEST_CASE("Values that turn a step off keep everything", "[model][sampler]") {
    DecodingParams params;
    params.top_k = GENERATE(-1, 0, 4, 100, std::numeric_limits<std::int32_t>::max());
    CHECK(kept(kFour, with(params)).size() == 4);
    Drawer drawer;
    DecodingParams off;
    for (std::uint32_t position = 0; position < 50; ++position) {
        CHECK(drawer.id(kFour, with(params, position)) == drawer.id(kFour, with(off, position)));
    }
}

TEST_CASE("Top-k settles ties at its edge by id", "[model][sampler]") {
    const std::vector<float> row{5, 3, 0, 3, 3, 1, 3, -2};
    DecodingParams params;
    params.top_k = 3;
    CHECK(kept(row, with(params)) == std::vector<TokenId>{0, 1, 3});
    Drawer drawer;
    params.temperature = 2;
    for (std::uint32_t position = 0; position < 200; ++position) {
        const TokenId id = drawer.id(row, with(params, position));
        CHECK((id == 0 || id == 1 || id == 3));
    }
}

TEST_CASE("Typical sampling keeps what is closest to the entropy", "[model][sampler]") {
    // Entropy 1.142; -ln p: 0.693 1.204 1.897 2.996; distances 0.449 0.062 0.755 1.854.
    DecodingParams params;
    params.typical_p = 0.3;
    CHECK(kept(kFour, with(params)) == std::vector<TokenId>{1});
    params.typical_p = 0.7;
    CHECK(kept(kFour, with(params)) == std::vector<TokenId>{0, 1});
    params.typical_p = 0.9;
    CHECK(kept(kFour, with(params)) == std::vector<TokenId>{0, 1, 2});
    params.typical_p = 1;
    CHECK(kept(kFour, with(params)).size() == 4);

    params.typical_p = 0.3;
    Drawer drawer;
    for (std::uint32_t position = 0; position < 50; ++position) {
        CHECK(drawer.id(kFour, with(params, position)) == 1);
    }
}

TEST_CASE("A request's own order of steps is obeyed", "[model][sampler]") {
    DecodingParams params;
    params.temperature = 2;
    params.top_p = 0.8;
    CHECK(kept(kFour, with(params)).size() == 3);  // 0.39 0.30 0.21 0.12 once it is hot
    params.samplers = {SamplerStep::top_p, SamplerStep::temperature};
    CHECK(kept(kFour, with(params)).size() == 2);
    Drawer drawer;
    for (std::uint32_t position = 0; position < 200; ++position) {
        CHECK(drawer.id(kFour, with(params, position)) < 2);
    }
    params.samplers = {SamplerStep::temperature};  // what is not named does not act
    CHECK(kept(kFour, with(params)).size() == 4);
}

TEST_CASE("Penalties count what they should", "[model][sampler]") {
    TokenCounts counts;
    counts.add_prompt(0);
    counts.add_prompt(1);
    counts.add_answer(1);
    counts.add_answer(1);
    counts.add_answer(3);
    const std::vector<float> row{2, 4, 1, -1};
    DecodingParams params;
    const auto scores = [&] {  // differences of log-probabilities, relative to untouched token 2
        auto context = with(params);
        context.counts = &counts;
        const auto tokens = distribution(row, context);
        REQUIRE(tokens.has_value());
        std::array<double, 4> out{};
        for (const auto& token : *tokens)
            out[static_cast<std::size_t>(token.id)] = std::log(token.probability);
        for (const std::size_t i : {0, 1, 3})
            out[i] = out[i] - out[2] + row[2];
        return out;
    };
    SECTION("repetition: prompt and answer, by sign, once a token") {
        params.repetition_penalty = 2;
        CHECK(scores()[0] == Approx(1));
        CHECK(scores()[1] == Approx(2));
        CHECK(scores()[3] == Approx(-2));
    }
    SECTION("frequency: the answer only, by count") {
        params.frequency_penalty = 0.5;
        CHECK(scores()[0] == Approx(2));
        CHECK(scores()[1] == Approx(3));
        CHECK(scores()[3] == Approx(-1.5));
    }
    SECTION("presence: the answer only, once") {
        params.presence_penalty = -0.5;
        CHECK(scores()[0] == Approx(2));
        CHECK(scores()[1] == Approx(4.5));
        CHECK(scores()[3] == Approx(-0.5));
    }
    SECTION("they come before greedy") {
        params.temperature = 0;
        params.presence_penalty = 2;
        params.frequency_penalty = 0.5;
        auto context = with(params);
        context.counts = &counts;
        Drawer drawer;
        CHECK(drawer.id(row, context) == 0);  // 4 - 2 - 2 * 0.5 = 1 is below 2
    }
}

TEST_CASE("Bias moves scores, and -100 bans", "[model][sampler]") {
    DecodingParams params;
    params.temperature = 0;
    Drawer drawer;
    params.logit_bias = {{2, 5.0F}};
    CHECK(drawer.id(kFour, with(params)) == 2);
    params.logit_bias = {{0, -100.0F}};
    CHECK(drawer.id(kFour, with(params)) == 1);
    CHECK(kept(kFour, with(params)) == std::vector<TokenId>{1});
    params.temperature = 1;
    CHECK(kept(kFour, with(params)) == std::vector<TokenId>{1, 2, 3});
    params.logit_bias = {{0, -100.0F}, {1, -100.0F}, {2, -100.0F}, {3, -100.0F}};
    CHECK(!drawer(kFour, with(params)).has_value());
    CHECK(!distribution(kFour, with(params)).has_value());
}

TEST_CASE("End tokens are masked before min_tokens and by ignore_eos, all of them",
          "[model][sampler]") {
    const std::vector<TokenId> ends{0, 1};
    DecodingParams params;
    params.temperature = 0;
    auto context = with(params);
    context.end_tokens = ends;
    Drawer drawer;
    CHECK(drawer.id(kFour, context) == 0);
    params.min_tokens = 5;
    for (const auto& [length, want] : {std::pair{0U, 2}, std::pair{4U, 2}, std::pair{5U, 0}}) {
        context.answer_length = length;
        CHECK(drawer.id(kFour, context) == want);
    }
    params.min_tokens = 0;
    params.ignore_eos = true;
    context.answer_length = 1'000'000;
    CHECK(drawer.id(kFour, context) == 2);
    CHECK(kept(kFour, context) == std::vector<TokenId>{2});
}

TEST_CASE("A row with a score that is not finite fails alone", "[model][sampler]") {
    const float bad = GENERATE(as<float>{}, kNan, -kNan, kInf);
    std::vector<float> row(300, 1.0F);
    const std::size_t at = GENERATE(0U, 150U, 299U);
    row[at] = bad;
    CAPTURE(at, bad);
    DecodingParams params;
    params.temperature = GENERATE(0.0, 1.0);
    params.logprobs = GENERATE(false, true);
    params.top_logprobs = 3;
    Drawer drawer;
    CHECK(!drawer(row, with(params)).has_value());
    CHECK(drawer.top.empty());
    CHECK(!distribution(row, with(params)).has_value());
    // Masking the entry does not hide it.
    params.logit_bias = {{0, -100.0F}, {150, -100.0F}, {299, -100.0F}};
    CHECK(!drawer(row, with(params)).has_value());
}

TEST_CASE("Raw log-probabilities are those of the model's own scores", "[model][sampler]") {
    DecodingParams params;
    params.temperature = 0.7;
    params.top_k = 2;
    params.logprobs = true;
    params.top_logprobs = 3;
    params.logit_bias = {{3, 50.0F}, {0, -100.0F}};
    Drawer drawer;
    const auto drawn = drawer(kFour, with(params));
    REQUIRE(drawn.has_value());
    CHECK(drawn->id == 3);
    CHECK(drawn->logprob == Approx(std::log(0.05)).epsilon(1e-5));
    REQUIRE(drawn->top_count == 3);
    CHECK(drawer.top[0].id == 0);
    CHECK(drawer.top[0].logprob == Approx(std::log(0.5)).epsilon(1e-5));
    CHECK(drawer.top[1].id == 1);
    CHECK(drawer.top[2].id == 2);
    CHECK(drawer.top[2].logprob == Approx(std::log(0.15)).epsilon(1e-5));
}

TEST_CASE("A given token is scored as a drawn one is", "[model][sampler]") {
    SamplerScratch scratch;
    std::vector<TokenLogprob> top{{9, -9.0F}};
    const auto scored = score(kFour, 3, 2, scratch, top);
    REQUIRE(scored.has_value());
    CHECK(scored->id == 3);
    CHECK(scored->logprob == Approx(std::log(0.05)).epsilon(1e-5));
    CHECK(scored->top_begin == 1);
    REQUIRE(scored->top_count == 2);
    CHECK(top[1].id == 0);
    CHECK(top[2].id == 1);

    DecodingParams params;
    params.logprobs = true;
    Drawer drawer;
    const std::vector<float> row = logs_of(std::vector<double>(300, 1.0 / 300));
    const auto drawn = drawer(row, with(params));
    CHECK(score(row, drawn->id, 0, scratch, top)->logprob == drawn->logprob);

    std::vector<float> broken = kFour;
    broken[1] = std::numeric_limits<float>::quiet_NaN();
    CHECK_FALSE(score(broken, 3, 2, scratch, top).has_value());
    CHECK(top.size() == 3);
}

TEST_CASE("Processed log-probabilities are those of what the steps leave", "[model][sampler]") {
    DecodingParams params;
    params.logprobs = true;
    params.logprobs_mode = LogprobsMode::processed;
    params.top_logprobs = 4;
    Drawer drawer;
    SECTION("truncated: the others are not listed") {
        params.top_k = 2;
        const auto drawn = drawer(kFour, with(params));
        REQUIRE(drawn.has_value());
        REQUIRE(drawn->top_count == 2);
        CHECK(drawer.top[0].logprob == Approx(std::log(0.625)).epsilon(1e-5));
        CHECK(drawer.top[1].logprob == Approx(std::log(0.375)).epsilon(1e-5));
        CHECK(drawn->logprob == drawer.top[static_cast<std::size_t>(drawn->id)].logprob);
    }
    SECTION("temperature") {
        params.temperature = 0.5;
        const auto drawn = drawer(kFour, with(params));
        REQUIRE(drawn.has_value());
        REQUIRE(drawn->top_count == 4);
        CHECK(drawer.top[0].logprob == Approx(std::log(0.25 / 0.365)).epsilon(1e-5));
    }
    SECTION("greedy: after bias and penalties") {
        params.temperature = 0;
        params.logit_bias = {{0, -100.0F}};
        const auto drawn = drawer(kFour, with(params));
        REQUIRE(drawn.has_value());
        CHECK(drawn->id == 1);
        CHECK(drawn->logprob == Approx(std::log(0.6)).epsilon(1e-5));
        REQUIRE(drawn->top_count == 3);
        CHECK(drawer.top[0].id == 1);
    }
    SECTION("another order of steps") {
        params.temperature = 2;
        params.top_p = 0.8;
        params.samplers = {SamplerStep::top_p, SamplerStep::temperature};
        const auto drawn = drawer(kFour, with(params));
        REQUIRE(drawn.has_value());
        REQUIRE(drawn->top_count == 2);
        const double a = std::sqrt(0.5);
        const double b = std::sqrt(0.3);
        CHECK(drawer.top[0].logprob == Approx(std::log(a / (a + b))).epsilon(1e-5));
        CHECK(drawn->logprob == drawer.top[static_cast<std::size_t>(drawn->id)].logprob);
    }
}

TEST_CASE("Without logprobs there is none", "[model][sampler]") {
    DecodingParams params;
    params.top_logprobs = 5;
    Drawer drawer;
    const auto drawn = drawer(kFour, with(params));
    REQUIRE(drawn.has_value());
    CHECK(std::isnan(drawn->logprob));
    CHECK(drawn->top_count == 0);
    CHECK(drawer.top.empty());
}

TEST_CASE("The stages of a distribution tell what each step did", "[model][sampler]") {
    DecodingParams params;
    params.temperature = 0.5;
    params.top_k = 3;
    params.min_p = 0.1;
    params.logit_bias = {{3, -100.0F}};
    const auto stages = distribution_stages(kFour, with(params));
    REQUIRE(stages.has_value());
    std::vector<std::string> names;
    for (const auto& stage : *stages)
        names.emplace_back(stage.name);
    CHECK(names == std::vector<std::string>{"scores", "bias", "temperature", "top_k", "min_p"});
    CHECK((*stages)[0].tokens.size() == 4);
    CHECK((*stages)[0].tokens[1].probability == Approx(0.3).epsilon(1e-6));
    CHECK((*stages)[1].tokens.size() == 3);
    CHECK((*stages)[4].tokens.size() == 2);  // 0.09 of the largest falls below 0.1
}

TEST_CASE("Large rows keep and draw by definition whatever the steps", "[model][sampler]") {
    std::mt19937 random{5};
    std::normal_distribution<float> normal{0, GENERATE(0.5F, 3.0F, 8.0F)};
    std::vector<float> row(20'000);
    for (float& z : row)
        z = normal(random);
    Drawer drawer;
    DecodingParams params;
    params.seed = 99;
    params.temperature = GENERATE(0.6, 1.9);
    params.top_k = GENERATE(0, 1, 40, 700, 6000);
    params.top_p = GENERATE(1.0, 0.95, 0.4, 0.0);
    params.min_p = GENERATE(0.0, 0.05);
    const auto tokens = distribution(row, with(params));
    REQUIRE(tokens.has_value());
    for (std::uint32_t position = 0; position < 3; ++position) {
        const DrawPlace place{.seed = 99, .position = position};
        TokenId want = -1;
        double best = -std::numeric_limits<double>::infinity();
        for (const auto& token : *tokens) {
            const double value = std::log(token.probability) + gumbel(place, token.id);
            if (value > best) {
                best = value;
                want = token.id;
            }
        }
        CHECK(drawer.id(row, with(params, position)) == want);
    }
}
