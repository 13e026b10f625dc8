// On the emulated device, and on two that share the model: the bits of a row's scores depend on
// that row alone, and on no interleaving of streams and threads.
#include <span>

#include "tests/gpu/gpu_fixture.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t kDecoded = 3;

// Scores after the prompt and after each decoded token, and those tokens.
struct Trace {
    std::vector<float> logits;
    Tokens ids;
    friend bool operator==(const Trace&, const Trace&) = default;
};

// Sampled with everything on, so that draws are compared as well.
model::DecodingParams lively_params() {
    model::DecodingParams params;
    params.temperature = 0.9;
    params.top_k = 40;
    params.top_p = 0.95;
    params.repetition_penalty = 1.2;
    params.seed = 17;
    return params;
}

Trace run_alone(model::Backend& backend, const Tokens& prompt, std::uint32_t chunk = 0,
                const model::DecodingParams& params = lively_params()) {
    EngineDriver driver(backend);
    Trace trace;
    driver.open(5, params, prompt);
    trace.logits = driver.prefill(5, prompt, 1, chunk);
    trace.ids.push_back(driver.result().sampled.back().id);
    for (std::size_t i = 0; i < kDecoded; ++i) {
        driver.add_drawn(5, 1);
        const model::StepResult& result = driver.run();
        trace.ids.push_back(result.sampled.back().id);
        trace.logits.insert(trace.logits.end(), result.logits.begin(), result.logits.end());
    }
    driver.close(5);
    driver.run();
    return trace;
}

// Neighbours whose prompts are fed and who decode, around the one that is watched.
Trace run_among(model::Backend& backend, const Tokens& prompt, std::uint32_t neighbours) {
    EngineDriver driver(backend);
    driver.shuffle_pages(neighbours);
    Trace trace;
    std::mt19937 random(neighbours);
    const auto add_neighbours = [&](model::SlotId begin, model::SlotId end) {
        for (model::SlotId slot = begin; slot < end; ++slot)
            driver.add(slot, random_tokens(1 + random() % 5, slot), 1);
    };
    const model::SlotId mine = neighbours / 2;
    for (model::SlotId slot = 0; slot <= neighbours; ++slot) {
        driver.open(slot, slot == mine ? lively_params() : greedy_params(),
                    slot == mine ? prompt : Tokens{});
    }
    for (std::size_t i = 0; i <= kDecoded; ++i) {
        add_neighbours(0, mine);
        if (i == 0) {
            driver.add(mine, prompt, 1, 1);
        } else {
            driver.add_drawn(mine, 1);
        }
        add_neighbours(mine + 1, neighbours + 1);
        const model::StepResult& result = driver.run();
        trace.ids.push_back(result.sampled[mine].id);
        trace.logits.insert(trace.logits.end(), result.logits.begin(), result.logits.end());
    }
    backend.reset();
    return trace;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "on the device a row's bits do not depend on its company",
                 "[gpu][backend][invariance]") {
    const model::GgufFile* file = GENERATE(stories_gguf(), stories_halves_gguf());
    const auto cards = GENERATE(1, 2);
    if (file == nullptr || !have_cards(cards)) return;
    const auto backend = make_cuda(*file, small_cuda_options(cards));
    const Tokens prompt = random_tokens(21, 4);
    const Trace expected = run_alone(*backend, prompt);
    REQUIRE(expected.ids.size() == kDecoded + 1);
    CHECK(run_alone(*backend, prompt, 1) == expected);
    CHECK(run_alone(*backend, prompt, 8) == expected);
    CHECK(run_among(*backend, prompt, 3) == expected);
    CHECK(run_among(*backend, prompt, 9) == expected);
    CHECK(run_among(*backend, prompt, 26) == expected);
}

TEST_CASE_METHOD(EmulatorFixture,
                 "long contexts are the same bits in one chunk, in several, as a draft and decoded",
                 "[gpu][backend][invariance]") {
    const model::GgufFile* file = stories_halves_gguf();
    const auto cards = GENERATE(1, 2);
    if (file == nullptr || !have_cards(cards)) return;
    gpu::CudaOptions options = small_cuda_options(cards);
    options.tokens_per_step_max = 512;
    const auto backend = make_cuda(*file, options);
    const Tokens prompt = random_tokens(262, 8);  // attention in two splits
    EngineDriver driver(*backend);
    driver.open(0);
    const std::vector<float> whole = driver.prefill(0, prompt, 4);
    driver.open(1);
    driver.prefill(1, Tokens(prompt.begin(), prompt.end() - 4));
    std::vector<float> decoded;
    for (std::size_t i = prompt.size() - 4; i < prompt.size(); ++i) {
        driver.add(1, std::span(prompt).subspan(i, 1), 1, 1);
        const model::StepResult& result = driver.run();
        decoded.insert(decoded.end(), result.logits.begin(), result.logits.end());
    }
    CHECK(decoded == whole);
    driver.open(2);
    driver.prefill(2, Tokens(prompt.begin(), prompt.end() - 4), 1, 100);
    driver.add(2, std::span(prompt).last(4), 1, 4);  // as a draft is checked: splits side by side
    CHECK(driver.run().logits == whole);
    driver.open(3);
    CHECK(driver.prefill(3, prompt, 4, 70) == whole);
}

namespace {

// Depth 2, as the executor drives it: the next step is submitted before the last is read.
Tokens run_overlapped(model::Backend& backend, const Tokens& prompt,
                      const model::DecodingParams& params = lively_params()) {
    model::StepPlan plans[2];
    model::StepResult result;
    Tokens ids;
    const auto submit = [&](std::uint32_t step, std::uint32_t position, const Tokens& tokens) {
        model::StepPlan& plan = plans[step % 2];
        plan.clear();
        if (step == 0) {
            model::SlotOpen open;
            open.slot = 7;
            open.params = params;
            open.prompt_length = static_cast<std::uint32_t>(prompt.size());
            open.history = prompt;
            plan.opens.push_back(open);
            for (model::PageId page = 0; page < 4; ++page)
                plan.grants.push_back({7, 9 - page});
        }
        plan.sequences.push_back({7, position, 0, static_cast<std::uint32_t>(tokens.size()), 1, 0});
        plan.tokens = tokens;
        backend.submit(plan);
    };
    submit(0, 0, prompt);
    auto position = static_cast<std::uint32_t>(prompt.size());
    for (std::uint32_t step = 1; step <= kDecoded + 1; ++step) {
        if (step <= kDecoded) submit(step, position++, {model::kDrawnToken});
        backend.wait(result);
        ids.push_back(result.sampled.front().id);
    }
    backend.reset();
    return ids;
}

// Drawn by model::sample on the host: a step is held back until the draw before it is known.
model::DecodingParams host_params() {
    model::DecodingParams params = lively_params();
    params.typical_p = 0.9;
    params.logprobs = true;
    params.top_logprobs = 2;
    return params;
}

void check_seeds(std::uint64_t begin, std::uint64_t end, int cards = 1) {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr || !have_cards(cards)) return;
    const auto backend = make_cuda(*file, small_cuda_options(cards));
    const Tokens prompt = random_tokens(3, 4);
    const Trace expected = run_alone(*backend, prompt);
    const Trace host_drawn = run_alone(*backend, prompt, 0, host_params());
    for (std::uint64_t seed = begin; seed < end; ++seed) {
        CAPTURE(seed);
        emulator::set_seed(seed);
        REQUIRE(run_overlapped(*backend, prompt) == expected.ids);
        if (seed % 4 == 0) {
            REQUIRE(run_overlapped(*backend, prompt, host_params()) == host_drawn.ids);
        }
    }
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "two steps in flight, under 12 interleavings",
                 "[gpu][backend][invariance]") {
    check_seeds(0, 12);
}

TEST_CASE_METHOD(EmulatorFixture, "two steps in flight on two cards, under 24 interleavings",
                 "[gpu][backend][invariance][ranks]") {
    check_seeds(0, 24, 2);
}

TEST_CASE_METHOD(EmulatorFixture, "two steps in flight on four cards, under 16 interleavings",
                 "[gpu][backend][invariance][ranks][long]") {
    check_seeds(24, 40, 4);
}

TEST_CASE_METHOD(EmulatorFixture, "two steps in flight, under 200 interleavings",
                 "[gpu][backend][invariance][long]") {
    check_seeds(12, 212);
}
