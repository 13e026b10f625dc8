// A device that fails for good in the middle of a step: whoever waits is told, and after a reset
// everything is as at the start.
#include "model/drafting_backend.hpp"
#include "tests/gpu/gpu_fixture.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const Tokens kPrompt{1, 403, 407, 261, 378};

Tokens decode(model::Backend& backend, std::size_t count) {
    EngineDriver driver(backend);
    driver.open(0);
    driver.prefill(0, kPrompt);
    const Tokens ids = driver.continue_greedily(0, count);
    driver.close(0);
    driver.run();
    return ids;
}

void lose_and_recover(model::Backend& backend, std::vector<std::uint64_t> after_kernels) {
    const Tokens expected = decode(backend, 3);
    const std::string fingerprint = backend.info().fingerprint;
    const std::uint32_t pages = backend.info().pages_total;
    for (const std::uint64_t kernels : after_kernels) {
        CAPTURE(kernels);
        emulator::lose_device_after(kernels);
        CHECK_THROWS_AS(decode(backend, 3), model::BackendError);
        backend.reset();
        CHECK_FALSE(emulator::hung());
        const std::uint64_t graphs = emulator::graph_launches();
        CHECK(decode(backend, 3) == expected);
        CHECK(emulator::graph_launches() >= graphs + 3);  // recorded anew
        CHECK(backend.info().fingerprint == fingerprint);
        CHECK(backend.info().pages_total == pages);
    }
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "a lost device ends its steps and is there again after a reset",
                 "[gpu][backend][loss]") {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr) return;
    lose_and_recover(*make_cuda(*file, small_cuda_options()), {1, 20, 90});
}

TEST_CASE_METHOD(EmulatorFixture,
                 "it takes a draft model's memory along, which is there again, too",
                 "[gpu][backend][loss]") {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr) return;
    gpu::CudaOptions options = small_cuda_options();
    auto target = make_cuda(*file, options);
    options.kv_pages = target->info().pages_total;
    options.tokens_per_step_max += options.slots_max;
    model::DraftingBackend backend(std::move(target), make_cuda(*file, options));
    lose_and_recover(backend, {1, 20, 90});
}

TEST_CASE_METHOD(EmulatorFixture, "one card of two is lost, and nobody waits for it",
                 "[gpu][backend][loss][ranks]") {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr || !have_cards(2)) return;
    const gpu::CudaOptions options = small_cuda_options(2);
    const bool drafts = GENERATE(false, true);
    std::unique_ptr<model::Backend> backend = make_cuda(*file, options);
    if (drafts) {
        gpu::CudaOptions draft = options;
        draft.kv_pages = backend->info().pages_total;
        draft.tokens_per_step_max += draft.slots_max;
        backend =
            std::make_unique<model::DraftingBackend>(std::move(backend), make_cuda(*file, draft));
    }
    lose_and_recover(*backend, {1, 2, 60, 201, 330});
    emulator::set_seed(1);
    lose_and_recover(*backend, {60});
}
