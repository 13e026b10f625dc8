// Small steps as graphs: which sizes there are, and that no bit of an answer depends on them.
#include <span>

#include "gpu/layer_graphs.hpp"
#include "tests/gpu/gpu_fixture.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

// Scores of steps that come and go in size, one of them with attention in two splits.
std::vector<float> scores_of_steps(model::Backend& backend) {
    EngineDriver driver(backend);
    const Tokens longest = random_tokens(258, 1);
    driver.open(0);
    driver.prefill(0, longest);
    for (model::SlotId slot = 1; slot < 12; ++slot)
        driver.open(slot);
    std::vector<float> scores;
    for (const model::SlotId last : {0U, 2U, 11U, 0U, 2U, 11U, 2U}) {
        for (model::SlotId slot = 0; slot <= last; ++slot)
            driver.add(slot, random_tokens(slot == 2 ? 3 : 1, slot), 1, 1);
        const model::StepResult& result = driver.run();
        scores.insert(scores.end(), result.logits.begin(), result.logits.end());
    }
    backend.reset();
    return scores;
}

}  // namespace

TEST_CASE("small steps come in few sizes", "[gpu][graphs]") {
    using gpu::LayerSizes, gpu::padded_sizes;
    CHECK(padded_sizes({0, 0, 0}) == LayerSizes{0, 0, 0});
    CHECK(padded_sizes({1, 1, 0}) == LayerSizes{1, 1, 0});
    CHECK(padded_sizes({2, 2, 0}) == LayerSizes{8, 8, 0});
    CHECK(padded_sizes({9, 12, 2}) == LayerSizes{16, 16, 16});
    CHECK(padded_sizes({64, 65, 1}) == LayerSizes{64, 128, 64});
    CHECK(padded_sizes({1, 33, 1}) == LayerSizes{1, 64, 1});
}

TEST_CASE_METHOD(EmulatorFixture, "with and without graphs scores are the same bits",
                 "[gpu][backend][ranks][graphs]") {
    const model::GgufFile* file = stories_halves_gguf();
    const auto cards = GENERATE(1, 2);
    const auto window = GENERATE(model::AttentionWindow{}, model::AttentionWindow{24, 4});
    if (file == nullptr || !have_cards(cards)) return;
    gpu::CudaOptions options = small_cuda_options(cards);
    options.tokens_per_step_max = 260;
    options.window = window;
    const std::vector<float> with_graphs = scores_of_steps(*make_cuda(*file, options));
    options.graphs = false;
    CHECK(scores_of_steps(*make_cuda(*file, options)) == with_graphs);
}
