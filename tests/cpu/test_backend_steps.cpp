// What a step does besides computing scores: draws, drafts, penalties, slots, and nothing on the
// heap.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/cpu/allocation_counter.hpp"
#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const Tokens kPrompt{1, 403, 407, 261, 378};

}  // namespace

TEST_CASE("a steady step allocates nothing", "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const auto backend = make_backend(*file, small_options());
    EngineDriver driver(*backend);
    model::DecodingParams sampled;
    sampled.temperature = 0.8;
    sampled.top_k = 40;
    sampled.top_p = 0.95;
    sampled.logprobs = true;
    sampled.top_logprobs = 5;
    constexpr model::SlotId kSlots = 8;
    for (model::SlotId slot = 0; slot < kSlots; ++slot) {
        driver.open(slot, slot % 2 == 0 ? sampled : greedy_params());
        driver.prefill(slot, kPrompt);
    }
    model::StepPlan plan;
    model::StepResult result;
    const auto step = [&](std::uint32_t position) {
        plan.clear();
        for (model::SlotId slot = 0; slot < kSlots; ++slot) {
            plan.sequences.push_back({slot, position, slot, 1, 1, 1});
            plan.tokens.push_back(model::kDrawnToken);
        }
        backend->submit(plan);
        backend->wait(result);
    };
    step(5);
    step(6);
    const std::size_t before = allocation_count();
    for (std::uint32_t position = 7; position < 15; ++position)
        step(position);
    CHECK(allocation_count() - before == 0);
    CHECK(result.sampled.size() == kSlots);
    CHECK(result.sample_ns > 0);  // a part of all
    CHECK(result.sample_ns < result.compute_ns);

    plan.clear();  // a step without draws has no such part
    plan.sequences.push_back({0, 15, 0, 1, 0, 0});
    plan.tokens.push_back(model::kDrawnToken);
    backend->submit(plan);
    backend->wait(result);
    CHECK(result.sample_ns == 0);
    CHECK(result.compute_ns > 0);
}

TEST_CASE("two steps may be outstanding, the second fed by what the first draws",
          "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const auto backend = make_backend(*file, small_options());
    EngineDriver driver(*backend);
    driver.open(0);
    driver.prefill(0, kPrompt);
    const Tokens expected = driver.continue_greedily(0, 3);

    driver.open(1);
    driver.prefill(1, kPrompt);
    model::StepPlan first;
    first.step = 71;
    first.sequences.push_back({1, 5, 0, 1, 1, 0});
    first.tokens.push_back(model::kDrawnToken);
    model::StepPlan second = first;
    second.step = 72;
    second.sequences[0].position = 6;
    backend->submit(first);
    backend->submit(second);
    model::StepResult result;
    backend->wait(result);
    CHECK(result.step == 71);
    CHECK(result.sampled.at(0).id == expected[1]);
    backend->wait(result);
    CHECK(result.step == 72);
    CHECK(result.sampled.at(0).id == expected[2]);
}

TEST_CASE("a draft is verified by one step that draws after each of its tokens", "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const auto backend = make_backend(*file, small_options());
    // Penalties, so that each row's counts must end with its own token; and a draw by noise.
    model::DecodingParams params;
    params.temperature = 0.7;
    params.seed = 42;
    params.frequency_penalty = 0.9;
    params.repetition_penalty = 1.3;
    EngineDriver driver(*backend);
    driver.open(0, params, kPrompt);
    driver.prefill(0, kPrompt);
    const Tokens expected = driver.continue_greedily(0, 8);

    driver.open(1, params, kPrompt);
    driver.prefill(1, kPrompt);
    REQUIRE(driver.result().sampled.back().id == expected[0]);
    // Three right tokens and a wrong one, which the next step takes back.
    const Tokens draft{expected[0], expected[1], expected[2],
                       static_cast<model::TokenId>(expected[3] == 300 ? 301 : 300)};
    driver.add(1, draft, 4);
    const model::StepResult& result = driver.run();
    REQUIRE(result.sequences.at(0).sampled_count == 4);
    for (std::size_t i = 0; i < 3; ++i)
        CHECK(result.sampled[i].id == expected[i + 1]);
    driver.rewind(1, 1);
    for (std::size_t i = 3; i < 7; ++i) {
        driver.add(1, std::span(expected).subspan(i, 1), 1);
        CHECK(driver.run().sampled.at(0).id == expected[i + 1]);
    }
}

TEST_CASE("a resumed sequence draws what it would have drawn", "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const auto backend = make_backend(*file, small_options());
    model::DecodingParams params;
    params.seed = 9;
    params.presence_penalty = 1.5;
    EngineDriver driver(*backend);
    driver.open(0, params, kPrompt);
    driver.prefill(0, kPrompt);
    const Tokens expected = driver.continue_greedily(0, 8);

    Tokens so_far = kPrompt;
    so_far.insert(so_far.end(), expected.begin(), expected.begin() + 4);
    driver.open(1, params, kPrompt, 4, so_far);
    driver.prefill(1, so_far);
    const Tokens rest = driver.continue_greedily(1, 4);
    CHECK(rest == Tokens(expected.begin() + 4, expected.end()));
}

TEST_CASE("scores come back raw, in plan order, beside draws from biased ones", "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const auto backend = make_backend(*file, small_options());
    model::DecodingParams params = greedy_params();
    params.logit_bias = {{77, 100.0F}};
    EngineDriver driver(*backend);
    driver.open(0);
    driver.open(1, params);
    driver.add(0, kPrompt, 1, 2);
    driver.add(1, kPrompt, 2, 1);
    const model::StepResult& result = driver.run();
    const auto vocabulary = static_cast<std::size_t>(backend->info().vocabulary_size);
    REQUIRE(result.logits.size() == 3 * vocabulary);
    REQUIRE(result.sampled.size() == 3);
    const std::span logits(result.logits);
    // Both slots computed the same prompt: the last rows agree.
    CHECK(std::equal(logits.begin() + static_cast<std::ptrdiff_t>(vocabulary),
                     logits.begin() + static_cast<std::ptrdiff_t>(2 * vocabulary),
                     logits.begin() + static_cast<std::ptrdiff_t>(2 * vocabulary)));
    CHECK(static_cast<std::size_t>(result.sampled[0].id) ==
          argmax(logits.subspan(vocabulary, vocabulary)));
    CHECK(result.sampled[1].id == 77);
    CHECK(result.sampled[2].id == 77);
}

TEST_CASE("a prompt's tokens are scored by the softmax of the rows before them", "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const auto backend = make_backend(*file, small_options());
    const auto vocabulary = static_cast<std::size_t>(backend->info().vocabulary_size);
    Tokens prompt;
    for (model::TokenId i = 0; i < 70; ++i)  // more rows than are scored at once
        prompt.push_back(i == 0 ? 1 : 3 + (i * 89) % 500);
    EngineDriver driver(*backend);
    driver.open(0);
    const std::vector<float> logits =
        driver.prefill(0, prompt, static_cast<std::uint32_t>(prompt.size()));

    model::DecodingParams params;
    params.logprobs = true;
    params.top_logprobs = 2;
    driver.open(1, params);
    std::vector<model::SampledToken> scored;
    for (const std::size_t begin : {0U, 40U}) {
        const std::size_t end = begin == 0 ? 40 : prompt.size();
        const std::size_t targets = std::min(end, prompt.size() - 1) - begin;
        driver.add_scored(1, std::span(prompt).subspan(begin, end - begin),
                          std::span(prompt).subspan(begin + 1, targets));
        driver.add_drawn(0);
        const model::StepResult& result = driver.run();
        REQUIRE(result.sequences.at(0).scored_count == targets);
        REQUIRE(result.sampled.size() == 1);
        for (const model::SampledToken& token : result.scored) {
            REQUIRE(token.top_count == 2);
            CHECK(result.top.at(token.top_begin).logprob >= token.logprob);
            scored.push_back(token);
        }
    }
    REQUIRE(scored.size() == prompt.size() - 1);
    for (std::size_t i = 0; i < scored.size(); ++i) {
        const auto row = std::span(logits).subspan(i * vocabulary, vocabulary);
        double sum = 0;
        for (const float score : row)
            sum += std::exp(static_cast<double>(score));
        CHECK(scored[i].id == prompt[i + 1]);
        CHECK(scored[i].logprob ==
              Approx(row[static_cast<std::size_t>(prompt[i + 1])] - std::log(sum)).margin(2e-5));
    }
}

TEST_CASE("a sequence that can draw nothing fails alone", "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const auto backend = make_backend(*file, small_options());
    model::DecodingParams all_banned = greedy_params();
    for (model::TokenId id = 0; id < backend->info().vocabulary_size; ++id) {
        all_banned.logit_bias.emplace_back(id, -100.0F);
    }
    EngineDriver driver(*backend);
    driver.open(0);
    driver.prefill(0, kPrompt);
    const Tokens expected = driver.continue_greedily(0, 2);
    driver.open(1);
    driver.open(2, all_banned);
    for (const model::SlotId slot : {1U, 2U})
        driver.add(slot, kPrompt, 1);
    driver.run();
    CHECK(!driver.result().sequences.at(0).failed);
    CHECK(driver.result().sequences.at(1).failed);
    CHECK(driver.result().sampled.at(0).id == expected[0]);
    // The step after it is planned already, with whatever the failed sequence drew.
    for (const model::SlotId slot : {1U, 2U})
        driver.add_drawn(slot);
    driver.run();
    CHECK(driver.result().sampled.at(0).id == expected[1]);
    CHECK(driver.result().sequences.at(1).failed);
}

TEST_CASE("after a reset every slot can be opened again and answers as before", "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const auto backend = make_backend(*file, small_options());
    Tokens first;
    for (int round = 0; round < 2; ++round) {
        EngineDriver driver(*backend);
        driver.open(0);
        driver.prefill(0, kPrompt);
        const Tokens ids = driver.continue_greedily(0, 4);
        if (round == 0) first = ids;
        CHECK(ids == first);
        backend->reset();
    }
}

TEST_CASE("more rows than are scored at once are all drawn", "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const auto backend = make_backend(*file, small_options());
    EngineDriver driver(*backend);
    driver.open(0);
    driver.prefill(0, kPrompt);
    const model::TokenId expected = driver.result().sampled.back().id;
    for (model::SlotId slot = 1; slot < 50; ++slot) {
        driver.open(slot);
        driver.add(slot, kPrompt, 1);
    }
    const model::StepResult& result = driver.run();
    REQUIRE(result.sampled.size() == 49);
    for (const model::SampledToken& token : result.sampled)
        CHECK(token.id == expected);
}

TEST_CASE("no memory for the KV cache is an error that names the flag", "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    options.kv_memory_bytes = 100;  // less than a page
    const auto too_little = cpu::make_cpu_backend(*file, options);
    REQUIRE(!too_little);
    CHECK(too_little.error().kind == ErrorKind::out_of_memory);
    CHECK(too_little.error().message.find("raise --kv-memory") != std::string::npos);
}

TEST_CASE("the fingerprint changes with the arithmetic and not with the threads",
          "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    const std::string native = make_backend(*file, options)->info().fingerprint;
    options.threads = 1;
    options.instruction_set = "plain";
    CHECK(make_backend(*file, options)->info().fingerprint == native);
    options.arithmetic = cpu::Arithmetic::float32;
    CHECK(make_backend(*file, options)->info().fingerprint != native);
}
