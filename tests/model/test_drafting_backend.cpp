// A target and its draft model as one backend: what is proposed, what counts, and that the draft
// model keeps up with the target.
#include <catch2/catch.hpp>

#include "model/drafting_backend.hpp"
#include "model/toy_backend.hpp"

using namespace troupe::model;
using Tokens = std::vector<TokenId>;

namespace {

constexpr TokenId kThe = 1;

// Feeds one slot of a toy by hand.
class Stream {
 public:
    Stream(Backend& backend, const DecodingParams& params) : backend_(backend) {
        plan_.opens.push_back({.slot = 0, .params = params, .prompt_length = 1, .history = {kThe}});
        for (PageId page = 0; page < 8; ++page)
            plan_.grants.push_back({0, page});
    }

    // One row of tokens, all of which draw.
    Tokens run(const Tokens& row) {
        const auto count = static_cast<std::uint32_t>(row.size());
        plan_.sequences.push_back({0, position_, 0, count, count, 0});
        plan_.tokens = row;
        backend_.submit(plan_);
        backend_.wait(result_);
        plan_.clear();
        Tokens drawn;
        for (std::uint32_t i = 0; i < result_.sequences.at(0).sampled_count; ++i)
            drawn.push_back(result_.sampled.at(i).id);
        position_ += static_cast<std::uint32_t>(drawn.size());
        return drawn;
    }

 private:
    Backend& backend_;
    std::uint32_t position_ = 0;
    StepPlan plan_;
    StepResult result_;
};

Tokens without_drafts(const DecodingParams& params, std::size_t count) {
    ToyBackend backend;
    Stream stream(backend, params);
    Tokens all{kThe};
    while (all.size() <= count)
        all.push_back(stream.run({all.back()}).at(0));
    return all;
}

DecodingParams endless(std::uint64_t seed, double temperature = 1) {
    DecodingParams params;
    params.seed = seed;
    params.temperature = temperature;
    params.ignore_eos = true;
    return params;
}

DraftingBackend drafting_toy() {
    ToyBackendOptions larger;
    larger.tokens_per_step_max += larger.slots_max;
    return {std::make_unique<ToyBackend>(), std::make_unique<ToyBackend>(larger)};
}

}  // namespace

TEST_CASE("a model that drafts for itself is always right", "[drafts]") {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        DecodingParams params = endless(seed);
        if (seed % 2 == 1) params.repetition_penalty = 1.5;
        if (seed % 4 == 3) params.min_tokens = 5, params.ignore_eos = false;
        const Tokens expected = without_drafts(params, 60);
        DraftingBackend backend = drafting_toy();
        REQUIRE(backend.info().drafts);
        Stream stream(backend, params);
        Tokens all{kThe};
        for (std::size_t drafts = 0; all.size() < 50; drafts = (drafts + 1) % 5) {
            Tokens row{all.back()};
            row.resize(1 + drafts, kDraftToken);
            const Tokens drawn = stream.run(row);
            REQUIRE(drawn.size() == 1 + drafts);
            all.insert(all.end(), drawn.begin(), drawn.end());
        }
        all.resize(50);
        REQUIRE(all == Tokens(expected.begin(), expected.begin() + 50));
    }
}

TEST_CASE("draws behind a proposal that was wrong are cut off", "[drafts]") {
    class Contrary final : public Backend {
     public:
        explicit Contrary(const ToyBackendOptions& options) : toy_(options) {}
        [[nodiscard]] const BackendInfo& info() const override { return toy_.info(); }
        void submit(const StepPlan& plan) override { toy_.submit(plan); }
        void wait(StepResult& result) override {
            toy_.wait(result);
            for (SampledToken& token : result.sampled)
                if (++draws_ % 3 == 0) token.id = (token.id + 1) % info().vocabulary_size;
        }
        void reset() override { toy_.reset(); }

     private:
        ToyBackend toy_;
        int draws_ = 0;
    };
    ToyBackendOptions larger;
    larger.tokens_per_step_max += larger.slots_max;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const DecodingParams params = endless(seed);
        const Tokens expected = without_drafts(params, 100);
        DraftingBackend backend(std::make_unique<ToyBackend>(), std::make_unique<Contrary>(larger));
        Stream stream(backend, params);
        Tokens all{kThe};
        std::size_t rows = 0, wrong = 0;
        while (all.size() < 60) {
            const Tokens drawn = stream.run({all.back(), kDraftToken, kDraftToken, kDraftToken});
            all.insert(all.end(), drawn.begin(), drawn.end());
            ++rows;
            wrong += drawn.size() < 4;
        }
        REQUIRE(all == Tokens(expected.begin(),
                              expected.begin() + static_cast<std::ptrdiff_t>(all.size())));
        REQUIRE(wrong == rows);  // of three proposals one is changed
    }
}

TEST_CASE("a draft that was given is verified as by any backend", "[drafts]") {
    const DecodingParams params = endless(3);
    const Tokens expected = without_drafts(params, 20);
    DraftingBackend backend = drafting_toy();
    Stream stream(backend, params);
    const Tokens drawn = stream.run({expected[0], expected[1], expected[2]});
    REQUIRE(drawn == Tokens{expected[1], expected[2], expected[3]});
    REQUIRE(stream.run({expected[3], kDraftToken}) == Tokens{expected[4], expected[5]});
}

TEST_CASE("of the rows of a draft those count whose tokens were drawn", "[drafts]") {
    StepPlan plan;
    plan.tokens = {5, 6, 7, 8};
    plan.sequences = {{.slot = 0, .token_count = 4, .sample_count = 4}};
    StepResult results;
    const auto count = [&](const Tokens& draws, bool failed) {
        results.sampled.clear();
        for (const TokenId id : draws)
            results.sampled.push_back({.id = id});
        return rows_that_count(
            plan, plan.sequences[0], results,
            {.sampled_count = static_cast<std::uint32_t>(draws.size()), .failed = failed});
    };
    REQUIRE(count({6, 7, 8, 9}, false) == 4);
    REQUIRE(count({6, 7, 1, 9}, false) == 3);
    REQUIRE(count({1, 7, 8, 9}, false) == 1);
    REQUIRE(count({}, true) == 1);      // the first row has failed
    REQUIRE(count({6, 7}, true) == 3);  // the third has, and it counts
    REQUIRE(count({6, 1}, true) == 2);  // the third has, behind a wrong guess: nobody's business
    plan.sequences[0].sample_count = 0;
    REQUIRE(count({}, false) == 0);
}
