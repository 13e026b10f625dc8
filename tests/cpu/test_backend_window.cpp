// The backend with a window and sinks: against a cache that holds nothing else and re-rotates what
// it holds, and beyond what the model was trained for.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>

#include "model/hyperparameters.hpp"
#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

Tokens random_tokens(std::size_t count, std::int32_t vocabulary) {
    std::mt19937 random(5);
    Tokens tokens(count);
    for (model::TokenId& token : tokens)
        token =
            static_cast<model::TokenId>(random() % static_cast<std::uint32_t>(vocabulary - 3)) + 3;
    return tokens;
}

// What one layer computed, by position: rows of "q", "k", "v" (not rotated) and "attn".
using Seen = std::map<std::string, std::vector<std::vector<float>>>;

// One head's vector, rotated to `position` in double, by the definition.
std::vector<double> rotated(const float* x, const model::Hyperparameters& hp,
                            std::size_t position) {
    std::vector<double> out(x, x + hp.head_length);
    for (std::uint32_t i = 0; i < hp.rope_dimension_count / 2; ++i) {
        const double angle =
            static_cast<double>(position) *
            std::pow(double{hp.rope_freq_base}, -2.0 * i / hp.rope_dimension_count);
        const double a = x[2 * i], b = x[2 * i + 1];
        out[2 * i] = a * std::cos(angle) - b * std::sin(angle);
        out[2 * i + 1] = b * std::cos(angle) + a * std::sin(angle);
    }
    return out;
}

// Attention of one query over a cache of the sinks and the window alone: they stand at 0, 1, 2 ...
// in it, and everything is rotated to where it stands there.
std::vector<double> streaming_attention(const Seen& seen, const model::Hyperparameters& hp,
                                        const model::AttentionWindow& window, std::size_t position,
                                        std::size_t head) {
    std::vector<std::size_t> held;
    for (std::size_t t = 0; t <= position; ++t) {
        if (t < window.sinks || t + window.tokens > position) held.push_back(t);
    }
    const std::size_t kv = head / hp.heads_per_kv() * hp.head_length;
    const auto q =
        rotated(seen.at("q")[position].data() + head * hp.head_length, hp, held.size() - 1);
    std::vector<double> weights, out(hp.head_length);
    double sum = 0;
    for (std::size_t at = 0; at < held.size(); ++at) {
        const auto k = rotated(seen.at("k")[held[at]].data() + kv, hp, at);
        double score = 0;
        for (std::size_t d = 0; d < k.size(); ++d)
            score += q[d] * k[d];
        weights.push_back(std::exp(score / std::sqrt(static_cast<double>(hp.head_length))));
        sum += weights.back();
    }
    for (std::size_t at = 0; at < held.size(); ++at) {
        for (std::size_t d = 0; d < out.size(); ++d)
            out[d] += weights[at] / sum * double{seen.at("v")[held[at]][kv + d]};
    }
    return out;
}

std::vector<float> scores_of(const model::GgufFile& file, const cpu::CpuOptions& options,
                             const Tokens& prompt) {
    const auto backend = make_backend(file, options);
    EngineDriver driver(*backend);
    driver.open(0);
    return driver.prefill(0, prompt, static_cast<std::uint32_t>(prompt.size()));
}

}  // namespace

TEST_CASE("a window with sinks equals a small cache that is rotated anew for every token",
          "[cpu][backend][window]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const model::Hyperparameters hp = model::read_hyperparameters(*file).value();
    const model::AttentionWindow window =
        GENERATE(model::AttentionWindow{24, 4}, model::AttentionWindow{7, 0},
                 model::AttentionWindow{16, 19});
    std::vector<Seen> layers(hp.block_count);
    cpu::CpuOptions options = small_options();
    options.arithmetic = cpu::Arithmetic::float32;
    options.window = window;
    options.tap = [&](const cpu::Tap& tap) {
        if (tap.layer >= layers.size()) return;
        for (std::size_t row = 0; row < tap.rows; ++row) {
            const float* values = tap.values + row * tap.stride;
            layers[tap.layer][std::string(tap.name)].emplace_back(values, values + tap.columns);
        }
    };
    const auto backend = make_backend(*file, options);
    const Tokens prompt = random_tokens(101, backend->info().vocabulary_size);
    EngineDriver driver(*backend);
    driver.open(0);
    driver.prefill(0, prompt, 1, 37);
    for (const Seen& seen : layers) {
        REQUIRE(seen.at("attn").size() == prompt.size());
        for (std::size_t i = 0; i < prompt.size() * hp.head_count; ++i) {
            const std::size_t position = i / hp.head_count, head = i % hp.head_count;
            const auto expected = streaming_attention(seen, hp, window, position, head);
            for (std::size_t d = 0; d < expected.size(); ++d) {
                REQUIRE(seen.at("attn")[position][head * hp.head_length + d] ==
                        Approx(expected[d]).margin(2e-5));
            }
        }
    }
}

TEST_CASE("a window that holds everything changes no bit", "[cpu][backend][window]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    options.kv_type = GENERATE(cpu::KvType::f16, cpu::KvType::int8, cpu::KvType::int4);
    const Tokens prompt = random_tokens(90, 512);
    const std::vector<float> expected = scores_of(*file, options, prompt);
    options.window = GENERATE(model::AttentionWindow{86, 4}, model::AttentionWindow{90, 0},
                              model::AttentionWindow{60, 100});
    CHECK(scores_of(*file, options, prompt) == expected);
}

TEST_CASE("past what the model was trained for, memory stays flat and pages behind are others'",
          "[cpu][backend][window]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    options.context_length_max = 0;
    options.window = {48, 4};
    const auto backend = make_backend(*file, options);
    const std::uint32_t trained = model::read_hyperparameters(*file).value().context_length;
    CHECK(backend->info().context_length == 1U << 24);
    const Tokens text = random_tokens(trained + 200, backend->info().vocabulary_size);

    // Alone, in chunks, keeping all pages.
    EngineDriver whole(*backend);
    whole.open(0);
    const auto expected = whole.prefill(0, text, 1, 100);
    whole.close(0);
    whole.run();

    const WindowedRun run = run_windowed(*backend, options.window, text, 33, 33);
    CHECK(run.scores == expected);
    CHECK(run.pages_most <= 2 * options.window.pages_max(33));
}

TEST_CASE("the form of the cache and the window are told, and are in the fingerprint",
          "[cpu][backend][window]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    const auto fingerprint = [&] { return make_backend(*file, options)->info().fingerprint; };
    const std::string f16 = fingerprint();
    options.kv_type = cpu::KvType::int8;
    const auto backend = make_backend(*file, options);
    CHECK(backend->info().kv_type == "int8");
    // 5 layers of 4 heads: a key and a value of 8 bytes, each with 4 of scale.
    CHECK(backend->info().kv_bytes_per_token == 5 * 4 * 2 * (8 + 4));
    CHECK(backend->info().fingerprint != f16);
    options.kv_type = cpu::KvType::f16;
    CHECK(fingerprint() == f16);
    options.window = {64, 4};
    const std::string windowed = fingerprint();
    CHECK(windowed != f16);
    options.window = {64, 5};
    CHECK(fingerprint() != windowed);
}

TEST_CASE("a window wider than what the model was trained for is refused",
          "[cpu][backend][window]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    const std::uint32_t trained = model::read_hyperparameters(*file).value().context_length;
    cpu::CpuOptions options = small_options();
    options.window = {trained - 4, 5};
    const auto refused = cpu::make_cpu_backend(*file, options);
    REQUIRE(refused.has_error());
    CHECK(refused.error().kind == ErrorKind::invalid_input);
    CHECK(refused.error().message.find("--window") != std::string::npos);
}
