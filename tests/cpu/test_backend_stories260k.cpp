// stories260K against llama2.c: a real model that is small enough for the plain kernels.
#include <catch2/catch.hpp>

#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"
#include "tests/support/json_file.hpp"

using namespace troupe;
using namespace troupe::test;

TEST_CASE("stories260K gives the greedy ids and scores of llama2.c", "[cpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr || !have_shared(kStories260kReference)) return;
    const auto arithmetic = GENERATE(cpu::Arithmetic::native, cpu::Arithmetic::float32);
    cpu::CpuOptions options = small_options();
    options.arithmetic = arithmetic;
    const auto backend = make_backend(*file, options);
    // Keys and values in half precision are the difference between the two.
    const double tolerance = arithmetic == cpu::Arithmetic::float32 ? 2e-4 : 5e-2;

    EngineDriver driver(*backend);
    const auto reference = read_json(shared_data(kStories260kReference));
    model::SlotId slot = 0;
    for (const auto& entry : reference.at("cases").as_array()) {
        const auto prompt = to_vector<model::TokenId>(entry.at("prompt_ids"));
        const auto ids = to_vector<model::TokenId>(entry.at("greedy_ids"));
        const auto expected = to_vector<double>(entry.at("logits_after_prompt"));
        CAPTURE(entry.at("prompt").as_string().c_str());
        driver.open(slot);
        const std::vector<float> logits = driver.prefill(slot, prompt);
        REQUIRE(logits.size() == expected.size());
        double worst = 0;
        for (std::size_t i = 0; i < logits.size(); ++i) {
            worst = std::max(worst, std::abs(logits[i] - expected[i]));
        }
        CHECK(worst < tolerance);
        if (arithmetic == cpu::Arithmetic::float32) {
            CHECK(driver.continue_greedily(slot, ids.size()) == ids);
        }
        ++slot;
    }
    REQUIRE(slot == 7);
}
