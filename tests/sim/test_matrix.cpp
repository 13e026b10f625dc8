// The CPU backend under every combination of circumstances (matrix.hpp).
#include "tests/cpu/backend_fixture.hpp"
#include "tests/sim/matrix.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int32_t kAnswerTokens = 40;

// How the server was started.
struct Cache {
    cpu::KvType kv_type = cpu::KvType::f16;
    model::AttentionWindow window{};
};

std::unique_ptr<model::Backend> make_cpu(const model::GgufFile& file, const Cache& cache,
                                         const Circumstances& c, std::uint32_t pages) {
    cpu::CpuOptions options = small_options();
    options.kv_type = cache.kv_type;
    options.window = cache.window;
    options.context_length_max = 512;
    options.threads = c.neighbours ? 2 : 1;
    options.tokens_per_step_max = c.chunked ? kMatrixStepTokensChunked : kMatrixStepTokens;
    options.kv_pages = pages;
    if (pages != 0) options.tokens_per_step_max += options.slots_max;
    return make_backend(file, options);
}

void check_matrix(const model::DecodingParams& params, const Cache& cache = {}) {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const MakeBackend make = [&](const Circumstances& c, std::uint32_t pages) {
        return make_cpu(*file, cache, c, pages);
    };
    const std::vector<Answer> alone = answers_alone(make, params);
    for (unsigned mask = 1; mask < 64; ++mask)
        check_circumstances(make, params, alone, mask);
}

}  // namespace

TEST_CASE("a greedy answer is the same under all circumstances", "[sim][matrix]") {
    check_matrix(greedy_answer(kAnswerTokens));
}

TEST_CASE("a sampled answer is the same under all circumstances", "[sim][matrix]") {
    check_matrix(sampled_answer(kAnswerTokens));
}

TEST_CASE("so it is with every form of the KV cache", "[sim][matrix]") {
    check_matrix(sampled_answer(kAnswerTokens),
                 {.kv_type = GENERATE(cpu::KvType::int8, cpu::KvType::int4)});
}

TEST_CASE("so it is with a window that leaves most of the prompt behind", "[sim][matrix]") {
    check_matrix(sampled_answer(kAnswerTokens),
                 {.kv_type = cpu::KvType::int8, .window = {.tokens = 24, .sinks = 4}});
}
