// The CUDA backend with keys and values in int8, and with a window and sinks, on the emulated
// device: against the CPU's float32, against itself, and beyond what the model was trained for.
#include <span>

#include "model/hyperparameters.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/gpu/kernels_support.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<float> scores_of(model::Backend& backend, const Tokens& prompt, std::uint32_t count,
                             std::uint32_t chunk = 0) {
    EngineDriver driver(backend);
    driver.open(0);
    std::vector<float> scores = driver.prefill(0, prompt, count, chunk);
    driver.close(0);
    driver.run();
    return scores;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "with int8 and a window the device follows the CPU's float32",
                 "[gpu][backend][window]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    gpu::CudaOptions options = small_cuda_options();
    options.kv_form = GENERATE(gpu::KvForm::f16, gpu::KvForm::int8);
    options.window = GENERATE(model::AttentionWindow{}, model::AttentionWindow{24, 4},
                              model::AttentionWindow{16, 19});
    cpu::CpuOptions reference = small_options();
    reference.arithmetic = cpu::Arithmetic::float32;
    reference.kv_type = options.kv_form == gpu::KvForm::int8 ? cpu::KvType::int8 : cpu::KvType::f16;
    reference.window = options.window;
    const Tokens prompt = random_tokens(60, 5);
    const std::vector<float> device = scores_of(*make_cuda(*file, options), prompt, 8);
    CHECK(error_of(device, scores_of(*make_backend(*file, reference), prompt, 8)) < 2e-3);
}

TEST_CASE_METHOD(EmulatorFixture, "on the device a window that holds everything changes no bit",
                 "[gpu][backend][window]") {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr) return;
    gpu::CudaOptions options = small_cuda_options();
    options.kv_form = gpu::KvForm::int8;
    const Tokens prompt = random_tokens(60, 5);
    const std::vector<float> expected = scores_of(*make_cuda(*file, options), prompt, 60);
    options.window = GENERATE(model::AttentionWindow{56, 4}, model::AttentionWindow{40, 70});
    CHECK(scores_of(*make_cuda(*file, options), prompt, 60, 17) == expected);
}

TEST_CASE_METHOD(EmulatorFixture,
                 "past what the model was trained for, the device's memory stays flat",
                 "[gpu][backend][window]") {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr) return;
    const std::uint32_t trained = model::read_hyperparameters(*file).value().context_length;
    gpu::CudaOptions options = small_cuda_options();
    options.context_length_max = 0;
    options.window = {24, 4};
    options.tokens_per_step_max = 128;
    const auto backend = make_cuda(*file, options);
    CHECK(backend->info().context_length == 1U << 24);
    const Tokens text = random_tokens(trained + 60, 5);

    // Alone, in chunks, keeping all pages.
    EngineDriver whole(*backend);
    whole.open(0);
    const auto expected = whole.prefill(0, text, 1, 128);
    whole.close(0);
    whole.run();

    const WindowedRun run = run_windowed(*backend, options.window, text, 64, 1);
    CHECK(run.scores == expected);
    CHECK(run.pages_most <= 2 * options.window.pages_max(64));
}

TEST_CASE_METHOD(EmulatorFixture, "the device tells its form of the cache and its window",
                 "[gpu][backend][window]") {
    const model::GgufFile* file = stories_halves_gguf();
    if (file == nullptr) return;
    gpu::CudaOptions options = small_cuda_options();
    const auto fingerprint = [&] { return make_cuda(*file, options)->info().fingerprint; };
    const std::string f16 = fingerprint();
    options.kv_form = gpu::KvForm::int8;
    const auto backend = make_cuda(*file, options);
    CHECK(backend->info().kv_type == "int8");
    // 5 layers of 4 heads: a key and a value of 8 bytes, each with 4 of scale.
    CHECK(backend->info().kv_bytes_per_token == 5 * 4 * 2 * (8 + 4));
    CHECK(backend->info().fingerprint != f16);
    options.kv_form = gpu::KvForm::f16;
    options.window = {64, 4};
    const std::string windowed = fingerprint();
    CHECK(windowed != f16);
    options.window = {64, 5};
    CHECK(fingerprint() != windowed);
    options.window = {1U << 20, 5};
    const auto refused = gpu::make_cuda_backend(*file, options);
    REQUIRE(refused.has_error());
    CHECK(refused.error().kind == ErrorKind::invalid_input);
    CHECK_THAT(refused.error().message, Catch::Contains("--window"));
}
