// What a plan may ask of the CUDA backend beyond plain decoding, on one or two emulated cards:
// drafts that are judged and taken back, draws on the host, copied pages, rows that fail, a
// rebuild.
#include <span>

#include "model/sampler.hpp"
#include "tests/gpu/gpu_fixture.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const Tokens kPrompt{1, 403, 407, 261, 378, 31, 40, 40, 31};

model::DecodingParams penalised_params() {
    model::DecodingParams params;
    params.temperature = 0.8;
    params.repetition_penalty = 1.4;
    params.frequency_penalty = 0.6;
    params.seed = 5;
    return params;
}

Tokens decode(model::Backend& backend, model::SlotId slot, std::size_t count,
              const model::DecodingParams& params) {
    EngineDriver driver(backend);
    driver.open(slot, params, kPrompt);
    driver.prefill(slot, kPrompt);
    Tokens ids = driver.continue_greedily(slot, count);
    driver.close(slot);
    driver.run();
    return ids;
}

Tokens ids_of(const model::StepResult& result) {
    Tokens ids;
    for (const model::SampledToken& sampled : result.sampled)
        ids.push_back(sampled.id);
    return ids;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "a judged draft draws what decoding draws, penalties included",
                 "[gpu][backend]") {
    const model::GgufFile* file = stories_halves_gguf();
    const auto cards = GENERATE(1, 2);
    if (file == nullptr || !have_cards(cards)) return;
    const auto backend = make_cuda(*file, small_cuda_options(cards));
    const Tokens expected = decode(*backend, 0, 6, penalised_params());
    EngineDriver driver(*backend);
    driver.open(1, penalised_params(), kPrompt);
    driver.prefill(1, kPrompt);
    CHECK(driver.result().sampled.back().id == expected[0]);
    // Two right guesses and a wrong one, which counts for nothing afterwards.
    const model::TokenId wrong = expected[3] == 77 ? 78 : 77;
    driver.add(1, Tokens{expected[0], expected[1], expected[2], wrong, wrong}, 5);
    const Tokens judged = ids_of(driver.run());
    CHECK(Tokens(judged.begin(), judged.begin() + 3) ==
          Tokens(expected.begin() + 1, expected.begin() + 4));
    driver.rewind(1, 2);
    driver.add(1, Tokens{expected[3]}, 1);
    CHECK(ids_of(driver.run()) == Tokens{expected[4]});
    driver.add_drawn(1);
    CHECK(ids_of(driver.run()) == Tokens{expected[5]});
}

TEST_CASE_METHOD(EmulatorFixture, "draws on the host are those of model::sample on the same scores",
                 "[gpu][backend]") {
    const model::GgufFile* file = stories_halves_gguf();
    const auto cards = GENERATE(1, 2);
    if (file == nullptr || !have_cards(cards)) return;
    const auto backend = make_cuda(*file, small_cuda_options(cards));
    model::DecodingParams params = penalised_params();
    params.typical_p = 0.8;
    params.logprobs = true;
    params.logprobs_mode = model::LogprobsMode::processed;
    params.top_logprobs = 3;
    EngineDriver driver(*backend);
    driver.open(0, params, kPrompt);
    std::vector<float> row = driver.prefill(0, kPrompt);
    model::TokenCounts counts;
    for (const model::TokenId token : kPrompt)
        counts.add_prompt(token);
    for (std::uint32_t i = 0; i < 3; ++i) {
        const Tokens ends{2};
        const model::SamplingContext context{
            params, &counts, ends, 0, i, static_cast<std::uint32_t>(kPrompt.size()) + i};
        model::SamplerScratch scratch;
        std::vector<model::TokenLogprob> top;
        const auto expected = model::sample(row, context, scratch, top);
        REQUIRE(expected);
        const model::StepResult& result = driver.result();
        REQUIRE(result.sampled.size() == 1);
        CHECK(result.sampled[0].id == expected->id);
        CHECK(result.sampled[0].logprob == expected->logprob);
        REQUIRE(result.top.size() == top.size());
        CHECK(result.top.front().id == top.front().id);
        counts.add_answer(expected->id);
        driver.add_drawn(0, 1);
        row = driver.run().logits;
    }
}

TEST_CASE_METHOD(EmulatorFixture, "a fork goes on with copied pages as its source does",
                 "[gpu][backend]") {
    const model::GgufFile* file = stories_halves_gguf();
    const auto cards = GENERATE(1, 2);
    if (file == nullptr || !have_cards(cards)) return;
    const auto backend = make_cuda(*file, small_cuda_options(cards));
    EngineDriver driver(*backend);
    driver.open(0);
    driver.prefill(0, kPrompt);
    const model::TokenId next = driver.result().sampled.back().id;
    driver.fork(0, 1);
    driver.add(0, Tokens{next}, 1, 1);
    driver.add(1, Tokens{next}, 1, 1);
    const model::StepResult& result = driver.run();
    const std::size_t half = result.logits.size() / 2;
    CHECK(std::equal(result.logits.begin(), result.logits.begin() + static_cast<long>(half),
                     result.logits.begin() + static_cast<long>(half)));
}

TEST_CASE_METHOD(EmulatorFixture, "after a reset in mid-flight the backend starts afresh",
                 "[gpu][backend]") {
    const model::GgufFile* file = stories_halves_gguf();
    const auto cards = GENERATE(1, 2);
    if (file == nullptr || !have_cards(cards)) return;
    const auto backend = make_cuda(*file, small_cuda_options(cards));
    const Tokens expected = decode(*backend, 0, 3, penalised_params());
    model::StepPlan plan;
    model::SlotOpen& open = plan.opens.emplace_back();
    open.slot = 0;
    plan.grants.push_back({0, 3});
    plan.sequences.push_back({0, 0, 0, 1, 1, 0});
    plan.tokens = {4};
    backend->submit(plan);
    backend->reset();
    CHECK(decode(*backend, 0, 3, penalised_params()) == expected);
}

TEST_CASE_METHOD(EmulatorFixture, "a device without room says what to change", "[gpu][backend]") {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr) return;
    gpu::CudaOptions options = small_cuda_options();
    options.kv_memory_bytes = std::uint64_t{8} << 30;
    options.slots_max = 4096;
    options.context_length_max = 512;
    const auto backend = gpu::make_cuda_backend(*file, options);
    REQUIRE_FALSE(backend.has_value());
    CHECK(backend.error().kind == ErrorKind::out_of_memory);
    CHECK_THAT(backend.error().message, Catch::Contains("--kv-memory"));
}

// Slow: some seconds a step. Keys and values are halves here and floats there, so a token may
// differ where two are nearly equal: then it must be one of the two.
TEST_CASE_METHOD(EmulatorFixture, "default model: the device and the CPU's float32 agree",
                 "[gpu][backend][long]") {
    const model::GgufFile* file = default_gguf();
    if (file == nullptr) return;
    constexpr double kNearTie = 0.05;
    constexpr std::size_t kDecoded = 31;
    gpu::CudaOptions options = small_cuda_options();
    options.context_length_max = 64;
    options.slots_max = 3;
    options.tokens_per_step_max = 64;
    const auto device = make_cuda(*file, options);
    const auto cpu = make_cpu_reference(*file, options);
    EngineDriver on_device(*device);
    EngineDriver on_cpu(*cpu);
    const std::vector<Tokens> prompts{{1, 4093, 198, 19556, 28, 638, 359, 346, 47, 2, 198},
                                      {504, 2404, 282, 4649, 314},
                                      {788, 2672, 281, 253, 655, 28}};
    const auto vocabulary = static_cast<std::size_t>(device->info().vocabulary_size);
    std::vector<Tokens> next = prompts;
    for (std::size_t step = 0; step <= kDecoded; ++step) {
        for (model::SlotId slot = 0; slot < prompts.size(); ++slot) {
            if (step == 0) {
                on_device.open(slot);
                on_cpu.open(slot);
            }
            on_device.add(slot, next[slot], 1, 1);
            on_cpu.add(slot, next[slot], 1, 1);
        }
        const model::StepResult& ours = on_device.run();
        const model::StepResult& theirs = on_cpu.run();
        for (model::SlotId slot = 0; slot < prompts.size(); ++slot) {
            const auto row = std::span(theirs.logits).subspan(slot * vocabulary, vocabulary);
            const model::TokenId id = ours.sampled[slot].id;
            CAPTURE(step, slot, id, theirs.sampled[slot].id);
            CHECK(row[static_cast<std::size_t>(id)] >= row[argmax(row)] - kNearTie);
            next[slot] = {id};
        }
    }
}
