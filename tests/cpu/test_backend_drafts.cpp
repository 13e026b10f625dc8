// Speculative decoding on real arithmetic: drafts, right and wrong, through the whole engine core,
// and a model that drafts for itself; always against the answer without.
#include <catch2/catch.hpp>

#include "model/drafting_backend.hpp"
#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const Tokens kPrompt{1, 403, 407, 261, 378};

model::DecodingParams noisy_params() {
    model::DecodingParams params;
    params.temperature = 0.8;
    params.seed = 11;
    params.top_p = 0.95;
    params.frequency_penalty = 0.4;
    params.repetition_penalty = 1.2;
    params.logprobs = true;
    params.top_logprobs = 3;
    return params;
}

struct Draw {
    model::TokenId id = 0;
    float logprob = 0;
    std::vector<model::TokenLogprob> top;
};

bool same(const Draw& a, const Draw& b) {
    const auto equal = [](const model::TokenLogprob& x, const model::TokenLogprob& y) {
        return x.id == y.id && x.logprob == y.logprob;
    };
    return a.id == b.id && a.logprob == b.logprob && std::ranges::equal(a.top, b.top, equal);
}

Draw draw_of(const model::StepResult& result, std::size_t index) {
    const model::SampledToken& token = result.sampled.at(index);
    const auto top = result.top.begin() + token.top_begin;
    return {token.id, token.logprob, {top, top + token.top_count}};
}

// One token at a time: prompt, then `count` draws.
std::vector<Draw> drawn_plainly(model::Backend& backend, model::SlotId slot,
                                const model::DecodingParams& params, std::size_t count) {
    EngineDriver driver(backend);
    driver.open(slot, params, kPrompt);
    driver.prefill(slot, kPrompt);
    std::vector<Draw> draws{draw_of(driver.result(), 0)};
    while (draws.size() < count) {
        driver.add_drawn(slot);
        draws.push_back(draw_of(driver.run(), 0));
    }
    driver.close(slot);
    driver.run();
    return draws;
}

}  // namespace

TEST_CASE("every row of a draft is drawn as if it were alone", "[cpu][backend][drafts]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const auto backend = make_backend(*file, small_options());
    model::DecodingParams params = noisy_params();
    params.min_tokens = 9;
    params.logprobs_mode = GENERATE(model::LogprobsMode::raw, model::LogprobsMode::processed);
    const std::vector<Draw> expected = drawn_plainly(*backend, 0, params, 60);

    EngineDriver driver(*backend);
    driver.open(0, params, kPrompt);
    driver.prefill(0, kPrompt);
    REQUIRE(same(draw_of(driver.result(), 0), expected[0]));
    std::mt19937 random(3);
    for (std::size_t known = 1; known + 9 < expected.size();) {
        // The last token and a draft of up to eight, the first `right` of which are right.
        const std::size_t drafts = random() % 9, right = random() % (drafts + 1);
        Tokens row;
        for (std::size_t i = 0; i <= drafts; ++i) {
            const model::TokenId id = expected[known - 1 + i].id;
            row.push_back(i <= right ? id : (id + 1) % 512);
        }
        driver.add(0, row, static_cast<std::uint32_t>(row.size()));
        const model::StepResult& result = driver.run();
        for (std::size_t i = 0; i <= right; ++i)
            REQUIRE(same(draw_of(result, i), expected[known + i]));
        driver.rewind(0, static_cast<std::uint32_t>(drafts - right));
        known += right + 1;
    }
}

TEST_CASE("end tokens are masked in a draft row by row", "[cpu][backend][drafts]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    options.end_tokens = {2};
    const auto backend = make_backend(*file, options);
    model::DecodingParams params = greedy_params();
    params.logit_bias = {{2, 100.0F}};
    params.min_tokens = 3;
    EngineDriver driver(*backend);
    driver.open(0, params, kPrompt);
    driver.prefill(0, kPrompt);
    driver.add(0, Tokens{5, 6, 7, 8}, 4);
    const model::StepResult& result = driver.run();
    CHECK(result.sampled.at(0).id != 2);  // the answer's second token
    CHECK(result.sampled.at(1).id != 2);
    CHECK(result.sampled.at(2).id == 2);
    CHECK(result.sampled.at(3).id == 2);
}

TEST_CASE("rows behind one that cannot be drawn from give nothing", "[cpu][backend][drafts]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    options.end_tokens = {2};
    const auto backend = make_backend(*file, options);
    model::DecodingParams params = greedy_params();
    params.min_tokens = 3;  // only the end token is allowed, and not yet
    for (model::TokenId id = 0; id < backend->info().vocabulary_size; ++id) {
        if (id != 2) params.logit_bias.emplace_back(id, -100.0F);
    }
    EngineDriver driver(*backend);
    driver.open(0, params, kPrompt);
    driver.add(0, kPrompt);
    driver.run();
    driver.add(0, Tokens{5, 6, 7, 8}, 4);
    const model::StepResult& result = driver.run();
    CHECK(result.sequences.at(0).failed);
    CHECK(result.sequences.at(0).sampled_count == 0);
}

TEST_CASE("a real model that drafts for itself is always right", "[cpu][backend][drafts]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const bool noisy = GENERATE(true, false);
    model::DecodingParams params = noisy ? noisy_params() : greedy_params();
    params.logprobs = true;
    auto target = make_backend(*file, small_options());
    const std::vector<Draw> expected = drawn_plainly(*target, 0, params, 60);
    cpu::CpuOptions options = small_options();
    options.kv_pages = target->info().pages_total;
    options.tokens_per_step_max += options.slots_max;
    model::DraftingBackend backend(std::move(target), make_backend(*file, options));

    EngineDriver driver(backend);
    driver.open(0, params, kPrompt);
    driver.prefill(0, kPrompt);
    std::vector<Draw> draws{draw_of(driver.result(), 0)};
    for (std::size_t drafts = 0; draws.size() < 50; drafts = (drafts + 1) % 6) {
        Tokens row{draws.back().id};
        row.resize(1 + drafts, model::kDraftToken);
        driver.add(0, row, static_cast<std::uint32_t>(row.size()));
        const model::StepResult& result = driver.run();
        REQUIRE(result.sequences.at(0).sampled_count == 1 + drafts);
        for (std::size_t i = 0; i <= drafts; ++i)
            draws.push_back(draw_of(result, i));
    }
    for (std::size_t i = 0; i < 50; ++i)
        REQUIRE(same(draws[i], expected[i]));
}
