// The whole CUDA backend on the emulated device with a tiny real model, against llama2.c and the
// CPU backend's float32.
#include <cmath>

#include "tests/gpu/gpu_fixture.hpp"
#include "tests/support/json_file.hpp"

using namespace troupe;
using namespace troupe::test;

TEST_CASE_METHOD(EmulatorFixture, "stories260K on the device gives the greedy ids of llama2.c",
                 "[gpu][backend]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr || !have_shared(kStories260kReference)) return;
    const auto backend = make_cuda(*file, small_cuda_options());
    EngineDriver driver(*backend);
    const auto reference = read_json(shared_data(kStories260kReference));
    model::SlotId slot = 0;
    for (const auto& entry : reference.at("cases").as_array()) {
        const auto prompt = to_vector<model::TokenId>(entry.at("prompt_ids"));
        auto ids = to_vector<model::TokenId>(entry.at("greedy_ids"));
        ids.resize(std::min<std::size_t>(ids.size(), 12));
        const auto expected = to_vector<double>(entry.at("logits_after_prompt"));
        CAPTURE(entry.at("prompt").as_string().c_str());
        driver.open(slot);
        const std::vector<float> logits = driver.prefill(slot, prompt);
        REQUIRE(logits.size() == expected.size());
        double worst = 0;
        for (std::size_t i = 0; i < logits.size(); ++i)
            worst = std::max(worst, std::abs(logits[i] - expected[i]));
        CHECK(worst < 2e-2);  // keys and values are halves
        CHECK(driver.continue_greedily(slot, ids.size()) == ids);
        ++slot;
    }
    REQUIRE(slot == 7);
}
