// Every number that docs/decoding.md gives for the toy model, through its backend where it counts.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <string>

#include "model/toy_backend.hpp"
#include "model/toy_model.hpp"

using namespace troupe;
using namespace troupe::model;

namespace {

std::vector<TokenId> ids_of(std::string_view text) {
    auto ids = ToyTokenizer::parse(text);
    REQUIRE(ids.has_value());
    return *ids;
}

// One sequence on a backend, a step at a time.
class Sequence {
 public:
    Sequence(ToyBackend& backend, SlotId slot, const DecodingParams& params,
             std::vector<TokenId> prompt, std::vector<PageId> pages)
        : backend_(backend), slot_(slot), tokens_(std::move(prompt)) {
        plan_.opens.push_back({.slot = slot,
                               .params = params,
                               .answer_index = 0,
                               .prompt_length = static_cast<std::uint32_t>(tokens_.size()),
                               .answer_count = 0,
                               .history = {}});
        for (const PageId page : pages)
            plan_.grants.push_back({slot, page});
    }

    // Computes what is new and draws one token, which joins the sequence.
    SampledToken step() {
        plan_.tokens.assign(tokens_.begin() + computed_, tokens_.end());
        const auto count = static_cast<std::uint32_t>(plan_.tokens.size());
        plan_.sequences.push_back({.slot = slot_,
                                   .position = static_cast<std::uint32_t>(computed_),
                                   .token_begin = 0,
                                   .token_count = count,
                                   .sample_count = 1,
                                   .logits_count = count});
        backend_.submit(plan_);
        backend_.wait(result);
        plan_.clear();
        computed_ = static_cast<std::ptrdiff_t>(tokens_.size());
        REQUIRE(result.sequences.size() == 1);
        REQUIRE(!result.sequences[0].failed);
        REQUIRE(result.sampled.size() == 1);
        tokens_.push_back(result.sampled[0].id);
        return result.sampled[0];
    }

    void close() {
        plan_.closes.push_back(slot_);
        backend_.submit(plan_);
        backend_.wait(result);
    }

    [[nodiscard]] const std::vector<TokenId>& tokens() const { return tokens_; }

    StepResult result;

 private:
    ToyBackend& backend_;
    SlotId slot_;
    std::vector<TokenId> tokens_;
    std::ptrdiff_t computed_ = 0;
    StepPlan plan_;
};

std::vector<PageId> pages_up_to(PageId count) {
    std::vector<PageId> pages;
    for (PageId page = 0; page < count; ++page)
        pages.push_back(page);
    return pages;
}

// `count` tokens in all, prompt included.
std::string text_of(const DecodingParams& params, std::string_view prompt, std::size_t count) {
    ToyBackend backend;
    Sequence sequence{backend, 0, params, ids_of(prompt), pages_up_to(4)};
    while (sequence.tokens().size() < count)
        sequence.step();
    return ToyTokenizer::decode(sequence.tokens());
}

double probability(std::string_view last, std::string_view next, const DecodingParams& params) {
    const auto scores = toy_scores(ids_of(last)[0]);
    const auto tokens = distribution(scores, {.params = params, .end_tokens = {}});
    REQUIRE(tokens.has_value());
    for (const TokenProbability& token : *tokens) {
        if (token.id == ids_of(next)[0]) return token.probability;
    }
    return 0;
}

double rounded(double value, int digits) {
    const double scale = std::pow(10, digits);
    return std::round(value * scale) / scale;
}

__extension__ using Uint128 = unsigned __int128;

constexpr Uint128 combine(std::uint64_t high, std::uint64_t low) {
    return (Uint128{high} << 64) | low;
}

// numpy.random.default_rng(7).random(): PCG64 (XSL-RR 128/64) in the state that its seeding leaves.
class Pcg64 {
 public:
    double uniform() {
        constexpr Uint128 kMultiplier = combine(0x2360ED051FC65DA4, 0x4385DF649FCCF645);
        state_ = state_ * kMultiplier + kIncrement;
        const auto rotation = static_cast<unsigned>(state_ >> 122);
        const auto folded =
            static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
        const std::uint64_t word = (folded >> rotation) | (folded << ((64 - rotation) % 64));
        return static_cast<double>(word >> 11) * 0x1p-53;
    }

 private:
    static constexpr Uint128 kIncrement = combine(0xC4751896CE8ACEBF, 0x66887F5AC070D959);
    Uint128 state_ = combine(0x9D0AECC4E7B18891, 0x9AE2415A6B292038);
};

// Up to six tokens after "the", by inverse distribution function over the ids; an end token ends
// it.
std::string text_by_inverse_cdf(Pcg64& random, double temperature) {
    DecodingParams params;
    params.temperature = temperature;
    std::vector<TokenId> tokens = ids_of("the");
    while (tokens.size() < 7) {
        const auto kept =
            distribution(toy_scores(tokens.back()), {.params = params, .end_tokens = {}});
        REQUIRE(kept.has_value());
        std::array<double, kToyWords.size()> by_id{};
        for (const auto& token : *kept)
            by_id[static_cast<std::size_t>(token.id)] = token.probability;
        const double u = random.uniform();
        double sum = 0;
        TokenId id = 0;
        while ((sum += by_id[static_cast<std::size_t>(id)]) <= u)
            ++id;
        if (id == kToyEnd) break;
        tokens.push_back(id);
    }
    return ToyTokenizer::decode(tokens);
}

}  // namespace

TEST_CASE("The toy model has the stated probabilities", "[model][toy]") {
    DecodingParams params;
    CHECK(rounded(probability("the", "cat", params), 3) == 0.515);
    CHECK(rounded(probability("the", "dog", params), 3) == 0.345);
    CHECK(rounded(probability("the", "mat", params), 3) == 0.115);
    CHECK(rounded(probability("the", "the", params), 3) == 0.003);
    CHECK(rounded(probability("ran", "away", params), 2) == 0.60);
    CHECK(rounded(probability("ran", "quickly", params), 2) == 0.37);

    for (const auto& [temperature, cat, dog, mat] :
         {std::tuple{0.2, 0.88, 0.12, 0.00}, std::tuple{0.7, 0.59, 0.33, 0.07},
          std::tuple{1.0, 0.52, 0.35, 0.11}, std::tuple{1.5, 0.42, 0.32, 0.15}}) {
        params.temperature = temperature;
        CHECK(probability("the", "cat", params) == Approx(cat).margin(0.0051));
        CHECK(probability("the", "dog", params) == Approx(dog).margin(0.0051));
        CHECK(probability("the", "mat", params) == Approx(mat).margin(0.0051));
    }
    for (const bool by_count : {true, false}) {
        DecodingParams truncated;
        truncated.top_k = by_count ? 2 : 0;
        truncated.top_p = by_count ? 1 : 0.9;
        CHECK(rounded(probability("ran", "away", truncated), 2) == 0.62);
        CHECK(rounded(probability("ran", "quickly", truncated), 2) == 0.38);
        CHECK(probability("ran", "the", truncated) == 0);
    }
}

TEST_CASE("The toy model's greedy text runs in a loop, which a penalty breaks", "[model][toy]") {
    DecodingParams params;
    params.temperature = 0;
    CHECK(text_of(params, "the", 11) == "the cat sat on the cat sat on the cat sat");
    params.presence_penalty = 2.0;
    CHECK(text_of(params, "the", 8) == "the cat sat on the dog ran away");
}

TEST_CASE("The toy model's scores give the stated losses", "[model][toy]") {
    const auto loss_of = [](std::string_view text) {
        ToyBackend backend;
        DecodingParams params;
        Sequence sequence{backend, 0, params, ids_of(text), pages_up_to(1)};
        sequence.step();
        const std::vector<TokenId> ids = ids_of(text);
        REQUIRE(sequence.result.logits.size() == ids.size() * kToyWords.size());
        double sum = 0;
        for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
            const auto row = std::span{sequence.result.logits}.subspan(i * 10, 10);
            double total = 0;
            for (const float z : row)
                total += std::exp(z);
            sum -= row[static_cast<std::size_t>(ids[i + 1])] - std::log(total);
        }
        return sum / static_cast<double>(ids.size() - 1);
    };
    const double sense = loss_of("the cat sat on the mat");
    CHECK(rounded(sense, 2) == 0.67);
    CHECK(rounded(std::exp(sense), 1) == 2.0);
    const double nonsense = loss_of("the mat sat on the dog");
    CHECK(rounded(nonsense, 2) == 1.68);
    CHECK(rounded(std::exp(nonsense), 1) == 5.4);
}

TEST_CASE("The toy model repeats what numpy draws from it", "[model][toy]") {
    Pcg64 random;
    CHECK(text_by_inverse_cdf(random, 0.3) == "the cat sat on the cat sat");
    CHECK(text_by_inverse_cdf(random, 0.3) == "the cat sat on the cat sat");
    CHECK(text_by_inverse_cdf(random, 1.0) == "the cat sat on the away");
    CHECK(text_by_inverse_cdf(random, 1.0) == "the dog mat");
    CHECK(text_by_inverse_cdf(random, 2.0) == "the cat ran the the dog ran");
    CHECK(text_by_inverse_cdf(random, 2.0) == "the mat cat sat on the");
}

TEST_CASE("The cache saves the stated number of computations", "[model][toy]") {
    std::vector<TokenId> prompt;
    while (prompt.size() < 2000)
        prompt.push_back(ids_of("the cat sat on")[prompt.size() % 4]);
    DecodingParams params;
    params.ignore_eos = true;
    params.seed = 3;

    ToyBackend cached;
    Sequence sequence{cached, 0, params, prompt, pages_up_to(157)};
    for (int i = 0; i < 500; ++i)
        sequence.step();
    // The last token drawn is computed too before anything could follow it.
    CHECK(cached.tokens_computed() + 1 == 2500);

    ToyBackend uncached;
    std::vector<TokenId> tokens = prompt;
    while (true) {
        Sequence again{uncached, 0, params, tokens, pages_up_to(157)};
        const TokenId drawn = again.step().id;
        again.close();
        if (tokens.size() == 2500) break;
        tokens.push_back(drawn);
    }
    CHECK(uncached.tokens_computed() == 1'127'250);
    const auto& with_cache = sequence.tokens();
    CHECK(std::equal(tokens.begin(), tokens.end(), with_cache.begin(), with_cache.end()));
}

TEST_CASE("The toy backend reads pages that another slot has filled, and copies", "[model][toy]") {
    DecodingParams params;
    params.temperature = 0;
    params.presence_penalty = 2.0;
    ToyBackend backend;
    StepPlan plan;
    StepResult result;
    const auto open = [&](SlotId slot, std::uint32_t prompt_length) {
        plan.opens.push_back({.slot = slot,
                              .params = params,
                              .answer_index = 0,
                              .prompt_length = prompt_length,
                              .answer_count = 0,
                              .history = {}});
    };
    open(0, 1);
    plan.grants = {{0, 7}};
    plan.tokens = ids_of("the cat sat on the");
    plan.sequences = {{.slot = 0, .position = 0, .token_begin = 0, .token_count = 5}};
    StepPlan first;
    std::swap(plan, first);
    backend.submit(first);
    // Submitted while the first is outstanding: a copy of the page, as if slot 1 had found four
    // tokens in the cache.
    plan.step = 1;
    open(1, 1);
    plan.copies = {{.from = 7, .to = 2, .tokens = 4}};
    plan.grants = {{1, 2}};
    plan.tokens = ids_of("the");
    plan.sequences = {
        {.slot = 1, .position = 4, .token_begin = 0, .token_count = 1, .sample_count = 1}};
    backend.submit(plan);
    backend.wait(result);
    CHECK(result.step == 0);
    CHECK(result.sampled.empty());
    backend.wait(result);
    CHECK(result.step == 1);
    REQUIRE(result.sampled.size() == 1);
    CHECK(ToyTokenizer::decode(std::array{result.sampled[0].id}) == "dog");
}

TEST_CASE("The toy backend draws after several positions of a draft as one by one",
          "[model][toy]") {
    DecodingParams params;
    params.seed = 11;
    params.frequency_penalty = 0.5;
    ToyBackend backend;
    Sequence sequence{backend, 0, params, ids_of("the cat"), pages_up_to(1)};
    for (int i = 0; i < 6; ++i)
        sequence.step();

    StepPlan plan;
    plan.opens.push_back({.slot = 1,
                          .params = params,
                          .answer_index = 0,
                          .prompt_length = 2,
                          .answer_count = 0,
                          .history = {}});
    plan.grants = {{1, 9}};
    plan.tokens.assign(sequence.tokens().begin(), sequence.tokens().end() - 1);
    plan.sequences = {
        {.slot = 1, .position = 0, .token_begin = 0, .token_count = 7, .sample_count = 6}};
    StepResult result;
    backend.submit(plan);
    backend.wait(result);
    REQUIRE(result.sampled.size() == 6);
    for (std::size_t i = 0; i < 6; ++i)
        CHECK(result.sampled[i].id == sequence.tokens()[2 + i]);
}

TEST_CASE("A toy sequence that may draw nothing fails alone", "[model][toy]") {
    DecodingParams banned;
    for (TokenId id = 0; id < 10; ++id)
        banned.logit_bias.emplace_back(id, -100.0F);
    StepPlan plan;
    for (const SlotId slot : {0U, 1U}) {
        plan.opens.push_back({.slot = slot,
                              .params = slot == 0 ? banned : DecodingParams{},
                              .answer_index = 0,
                              .prompt_length = 1,
                              .answer_count = 0,
                              .history = {}});
        plan.grants.push_back({slot, slot});
        plan.tokens.push_back(1);
        plan.sequences.push_back({.slot = slot,
                                  .position = 0,
                                  .token_begin = slot,
                                  .token_count = 1,
                                  .sample_count = 1});
    }
    ToyBackend backend;
    StepResult result;
    backend.submit(plan);
    backend.wait(result);
    REQUIRE(result.sequences.size() == 2);
    CHECK(result.sequences[0].failed);
    CHECK(!result.sequences[1].failed);
    CHECK(result.sequences[1].sampled_count == 1);
}

TEST_CASE("The toy tokenizer splits at spaces and names what it does not know", "[model][toy]") {
    const ToyTokenizer tokenizer;
    std::vector<TokenId> ids;
    tokenizer.encode("  the cat\n sat <end> on elephants ", ids);
    CHECK(ids == std::vector<TokenId>{1, 2, 4, 6});
    ids.clear();
    tokenizer.encode_with_control("the<end>cat", ids);
    CHECK(ids == std::vector<TokenId>{1, 0, 2});

    const auto unknown = ToyTokenizer::parse("the elephant sat");
    REQUIRE(!unknown);
    CHECK(unknown.error().message.find("\"elephant\"") != std::string::npos);
    CHECK(!ToyTokenizer::parse("the <end>"));

    CHECK(tokenizer.bytes_of(2) == " cat");
    CHECK(tokenizer.bytes_of(kToyEnd).empty());
    CHECK(tokenizer.piece(kToyEnd) == "<end>");
    CHECK(*tokenizer.find("quickly") == 9);
    CHECK(!tokenizer.find("quick").has_value());
    CHECK(tokenizer.vocabulary_size() == 10);
    CHECK(tokenizer.end_tokens().size() == 1);
    CHECK(ToyTokenizer::decode(ids_of("the cat sat")) == "the cat sat");
}
