// The CUDA backend on the emulated device under the circumstances of tests/sim/matrix.hpp. All 64
// of them would take minutes here: these meet each at least twice.
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/sim/matrix.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int32_t kAnswerTokens = 20;

// How the server was started.
struct Cache {
    gpu::KvForm form = gpu::KvForm::f16;
    model::AttentionWindow window{};
    int cards = 1;
};

void check_matrix(const std::vector<unsigned>& masks, const Cache& cache = {}) {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr || !have_cards(cache.cards)) return;
    const MakeBackend make = [&](const Circumstances& c, std::uint32_t pages) {
        gpu::CudaOptions options = small_cuda_options(cache.cards);
        options.kv_form = cache.form;
        options.window = cache.window;
        options.tokens_per_step_max = c.chunked ? kMatrixStepTokensChunked : kMatrixStepTokens;
        options.kv_pages = pages;
        if (pages != 0) options.tokens_per_step_max += options.slots_max;
        return make_cuda(*file, options);
    };
    const model::DecodingParams params = sampled_answer(kAnswerTokens);
    const std::vector<Answer> alone = answers_alone(make, params);
    for (const unsigned mask : masks)
        check_circumstances(make, params, alone, mask);
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "a sampled answer of the device is the same in any circumstances",
                 "[gpu][backend][matrix]") {
    check_matrix({8 + 4 + 1});  // preempted among neighbours, its prefix cached
}

TEST_CASE_METHOD(EmulatorFixture, "so it is of two devices, preempted and cut into chunks",
                 "[gpu][backend][matrix][ranks]") {
    check_matrix({4 + 2},
                 {.form = gpu::KvForm::int8, .window = {.tokens = 24, .sinks = 4}, .cards = 2});
}

TEST_CASE_METHOD(EmulatorFixture,
                 "so it is cut into chunks, preempted, and in five of them together",
                 "[gpu][backend][matrix][long]") {
    check_matrix({2, 4, 63 - 4});
}

TEST_CASE_METHOD(EmulatorFixture, "so it is in int8, with a window that leaves most behind",
                 "[gpu][backend][matrix]") {
    check_matrix({8 + 2 + 1}, {.form = gpu::KvForm::int8, .window = {.tokens = 24, .sinks = 4}});
}

TEST_CASE_METHOD(EmulatorFixture, "so it is with pages that go back, siblings and drafts",
                 "[gpu][backend][matrix][long]") {
    check_matrix({4 + 8, 16, 63 - 4},
                 {.form = gpu::KvForm::int8, .window = {.tokens = 24, .sinks = 4}});
}
