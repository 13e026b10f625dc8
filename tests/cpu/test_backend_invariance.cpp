// A row's scores depend on that row alone: bit for bit, whatever shares the step with it and
// however its prompt was cut, on every instruction set and any number of threads.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>

#include "cpu/kernels/kernels.hpp"
#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::size_t kPromptTokens = 83;
constexpr std::size_t kDecodedTokens = 5;
using Random = std::mt19937;

Tokens random_tokens(std::size_t count, std::int32_t vocabulary, std::uint32_t seed) {
    Random random(seed);
    Tokens tokens(count);
    for (model::TokenId& token : tokens) {
        token = static_cast<model::TokenId>(random() % static_cast<std::uint32_t>(vocabulary));
    }
    return tokens;
}

// The bits of all scores of a sequence: after its prompt's last token and each decoded one.
struct Trace {
    std::vector<float> logits;
    Tokens ids;

    friend bool operator==(const Trace& a, const Trace& b) {
        return a.ids == b.ids && a.logits.size() == b.logits.size() &&
               std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
    }
};

class Recorder {
 public:
    explicit Recorder(model::Backend& backend)
        : backend_(backend),
          driver(backend),
          prompt(random_tokens(kPromptTokens, backend.info().vocabulary_size, 7)) {}

    // Takes what the last step said about its sequence number `index`, which had all scores
    // of the step.
    void take() {
        const auto vocabulary = static_cast<std::size_t>(backend_.info().vocabulary_size);
        const model::StepResult& result = driver.result();
        REQUIRE(result.logits.size() == vocabulary);
        trace.logits.insert(trace.logits.end(), result.logits.begin(), result.logits.end());
    }
    void decode(model::SlotId slot) {
        for (std::size_t i = 0; i < kDecodedTokens; ++i) {
            driver.add_drawn(slot, 1);
            driver.run();
            take();
            trace.ids.push_back(driver.result().sampled.back().id);
        }
    }

 private:
    model::Backend& backend_;

 public:
    EngineDriver driver;
    Tokens prompt;
    Trace trace;
};

Trace alone(model::Backend& backend, std::uint32_t page_seed = 0) {
    Recorder recorder(backend);
    if (page_seed != 0) recorder.driver.shuffle_pages(page_seed);
    recorder.driver.open(3);
    recorder.driver.prefill(3, recorder.prompt);
    recorder.take();
    recorder.decode(3);
    recorder.driver.close(3);
    recorder.driver.run();
    return recorder.trace;
}

Trace in_random_chunks(model::Backend& backend, std::uint32_t seed) {
    Random random(seed);
    Recorder recorder(backend);
    recorder.driver.open(0);
    const std::span<const model::TokenId> prompt = recorder.prompt;
    for (std::size_t begin = 0; begin < prompt.size();) {
        const std::size_t count = std::min<std::size_t>(1 + random() % 40, prompt.size() - begin);
        const bool last = begin + count == prompt.size();
        recorder.driver.add(0, prompt.subspan(begin, count), last ? 1 : 0, last ? 1 : 0);
        recorder.driver.run();
        begin += count;
    }
    recorder.take();
    recorder.decode(0);
    recorder.driver.close(0);
    recorder.driver.run();
    return recorder.trace;
}

// The neighbours are prompts of random lengths in all stages: being fed in slices, and decoding.
Trace among_neighbours(model::Backend& backend, std::uint32_t batch, std::uint32_t seed) {
    Random random(seed);
    Recorder recorder(backend);
    EngineDriver& driver = recorder.driver;
    const model::SlotId mine = random() % batch;
    std::vector<Tokens> waiting(batch);
    for (model::SlotId slot = 0; slot < batch; ++slot) {
        driver.open(slot);
        waiting[slot] =
            random_tokens(1 + random() % 200, backend.info().vocabulary_size, seed + slot);
    }
    waiting[mine] = recorder.prompt;
    while (recorder.trace.ids.size() < kDecodedTokens) {
        std::uint32_t budget = backend.info().tokens_per_step_max;
        std::size_t my_index = 0;
        bool my_scores = false;
        std::size_t samples = 0;
        for (model::SlotId slot = 0; slot < batch && budget > 0; ++slot) {
            Tokens& tokens = waiting[slot];
            const std::size_t count =
                std::min<std::size_t>({1 + random() % 30, budget, tokens.size()});
            const bool draws = count == tokens.size();
            if (slot == mine) {
                my_scores = draws;
                my_index = samples;
            }
            const std::uint32_t wanted = slot == mine && draws ? 1 : 0;
            if (tokens.empty()) {
                driver.add_drawn(slot, slot == mine ? 1 : 0);
            } else {
                driver.add(slot, std::span(tokens).first(count), draws ? 1 : 0, wanted);
                tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
            }
            samples += draws ? 1 : 0;
            budget -= static_cast<std::uint32_t>(std::max<std::size_t>(count, 1));
        }
        const model::StepResult& result = driver.run();
        if (!my_scores) continue;
        const bool first = recorder.trace.logits.empty();
        recorder.take();
        if (!first) recorder.trace.ids.push_back(result.sampled[my_index].id);
    }
    for (model::SlotId slot = 0; slot < batch; ++slot)
        driver.close(slot);
    driver.run();
    return recorder.trace;
}

// The prompt's first part is computed by another slot, whose pages are then shared and copied.
Trace after_a_fork(model::Backend& backend) {
    Recorder recorder(backend);
    EngineDriver& driver = recorder.driver;
    constexpr std::size_t kShared = 55;  // three full pages and seven tokens
    const std::span<const model::TokenId> prompt = recorder.prompt;
    driver.open(0);
    driver.add(0, prompt.first(kShared), 1);
    driver.run();
    driver.fork(0, 1);
    driver.add_drawn(0);  // the original goes its own way, over the positions that were copied
    driver.add(1, prompt.subspan(kShared), 1, 1);
    driver.run();
    recorder.take();
    recorder.decode(1);
    backend.reset();
    return recorder.trace;
}

void check_invariance(const model::GgufFile& file, cpu::CpuOptions options) {
    const auto backend = make_backend(file, options);
    const Trace expected = alone(*backend);
    REQUIRE(expected.ids.size() == kDecodedTokens);
    SECTION("pages in another order") {
        CHECK(alone(*backend, 5) == expected);
    }
    SECTION("prompt cut at random") {
        for (const std::uint32_t seed : {1U, 2U, 3U}) {
            CHECK(in_random_chunks(*backend, seed) == expected);
        }
    }
    SECTION("with 7 and 31 neighbours") {
        CHECK(among_neighbours(*backend, 8, 11) == expected);
        CHECK(among_neighbours(*backend, 32, 12) == expected);
    }
    SECTION("after copying pages") {
        CHECK(after_a_fork(*backend) == expected);
    }
    SECTION("on 1 and 3 threads") {
        for (const std::uint32_t threads : {1U, 3U}) {
            options.threads = threads;
            CHECK(alone(*make_backend(file, options)) == expected);
        }
    }
    SECTION("on every instruction set") {
        for (const cpu::Kernels* kernels : cpu::available_kernels()) {
            CAPTURE(std::string(kernels->name));
            options.instruction_set = kernels->name;
            CHECK(alone(*make_backend(file, options)) == expected);
        }
    }
}

}  // namespace

TEST_CASE("stories260K: the bits of scores depend on their own row alone",
          "[cpu][backend][invariance]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    check_invariance(*file, small_options());
}

TEST_CASE("stories260K in float32: the bits of scores depend on their own row alone",
          "[cpu][backend][invariance]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    options.arithmetic = cpu::Arithmetic::float32;
    check_invariance(*file, options);
}

TEST_CASE("stories260K: so they do with every form of the KV cache, and with a window",
          "[cpu][backend][invariance][window]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    options.kv_type = GENERATE(cpu::KvType::int8, cpu::KvType::int4);
    options.window = GENERATE(model::AttentionWindow{}, model::AttentionWindow{24, 4});
    check_invariance(*file, options);
}

TEST_CASE("default model: the bits of scores depend on their own row alone",
          "[cpu][backend][invariance]") {
    const model::GgufFile* file = default_gguf();
    if (file == nullptr) return;
    check_invariance(*file, small_options());
}

TEST_CASE("default model: so they do with a window over keys and values in 4 bits",
          "[cpu][backend][invariance][window]") {
    const model::GgufFile* file = default_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    options.kv_type = cpu::KvType::int4;
    options.window = {40, 4};
    check_invariance(*file, options);
}
