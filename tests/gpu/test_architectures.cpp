// Architectures beyond Llama's on the emulated device: those that are known against transformers,
// the others refused by name.
#include <cmath>

#include "tests/cpu/architecture_models.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/gpu/kernels_support.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

gpu::CudaOptions tiny_options(std::uint32_t cards = 1) {
    gpu::CudaOptions options;
    options.cards = cards;
    options.kv_pages = 64;
    options.slots_max = 8;
    options.tokens_per_step_max = 64;
    return options;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture,
                 "known architectures have the scores of transformers on the device",
                 "[gpu][backend][architectures]") {
    const std::string name = GENERATE("llama", "qwen2", "qwen3");
    const auto type = GENERATE(model::TensorType::f32, model::TensorType::f16);
    const auto cards = GENERATE(1, 2);
    CAPTURE(name, to_string(type), cards);
    if (!have_cards(cards)) return;
    const boost::json::value reference = read_architecture(name);
    const std::vector<std::byte> bytes = architecture_gguf(reference, type);
    const model::GgufFile file = model::GgufFile::parse(bytes).value();
    const auto tokens = to_vector<model::TokenId>(reference.at("tokens"));
    std::vector<float> expected;
    const auto& rows = reference.at("scores").as_array();
    for (const auto& row : rows) {
        for (const float score : to_vector<float>(row))
            expected.push_back(score);
    }
    const auto backend = make_cuda(file, tiny_options(static_cast<std::uint32_t>(cards)));
    EngineDriver driver(*backend);
    driver.open(0);
    const std::vector<float> whole =
        driver.prefill(0, tokens, static_cast<std::uint32_t>(rows.size()));
    CHECK(error_of(whole, expected) < 5e-3);  // keys and values are halves
    driver.open(1);
    const std::vector<float> cut = driver.prefill(1, tokens, 1, 3);
    CHECK(same_bits(cut.data(), whole.data() + whole.size() - cut.size(), cut.size()));
}

TEST_CASE_METHOD(EmulatorFixture, "other architectures are refused by name",
                 "[gpu][backend][architectures]") {
    const std::string name = GENERATE("llama-linear", "mistral", "mixtral", "qwen2-yarn",
                                      "qwen3moe", "gemma2", "gemma3", "phi3", "smollm3", "olmo2");
    CAPTURE(name);
    const boost::json::value reference = read_architecture(name);
    const std::vector<std::byte> bytes = architecture_gguf(reference, model::TensorType::f32);
    const model::GgufFile file = model::GgufFile::parse(bytes).value();
    const auto refused = gpu::make_cuda_backend(file, tiny_options());
    REQUIRE(refused.has_error());
    CHECK(refused.error().kind == ErrorKind::unsupported);
    const std::string architecture{reference.at("architecture").as_string()};
    CHECK_THAT(refused.error().message, Catch::Contains(architecture));
    CHECK_THAT(refused.error().message, Catch::Contains("--backend cpu"));
}
