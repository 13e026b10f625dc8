// The bits that every processor gives, x86 or ARM, as digests: the other tests compare the sets of
// one machine with its plain code, which a compiler or a C library could change for all of them. A
// digest may change with arithmetic_version alone.
#include "cpu/kernels/rope.hpp"
#include "tests/cpu/attention_support.hpp"
#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"
#include "tests/support/sha256.hpp"

namespace troupe::test {
namespace {

template <class T>
std::string digest(const std::vector<T>& values) {
    return sha256_hex(std::as_bytes(std::span(values))).substr(0, 16);
}

void append(std::vector<float>& out, const std::vector<float>& values) {
    out.insert(out.end(), values.begin(), values.end());
}

// Every elementwise kernel, over rows of many magnitudes; what is quantised, too.
std::vector<float> elements(const Kernels& kernels) {
    Random random;
    std::vector<float> all;
    for (const float scale : {1e-30F, 0.03F, 1.0F, 7.0F, 60.0F, 1e20F}) {
        constexpr std::size_t columns = 160;
        const auto x = random.floats(columns, scale);
        const auto y = random.floats(columns, 2.0F);
        std::vector<float> out(columns);
        kernels.rms_norm(x.data(), y.data(), columns, 1e-5F, out.data());
        append(all, out);
        kernels.silu_mul(x.data(), y.data(), columns, out.data());
        append(all, out);
        kernels.gelu_mul(x.data(), y.data(), columns, out.data());
        append(all, out);
        out = x;
        kernels.soft_cap(out.data(), columns, 30.0F);
        append(all, out);
        const Quantized rows(x, columns, kernels);
        for (std::size_t k = 0; k < columns; ++k)
            all.push_back(rows.value(0, k));
    }
    return all;
}

std::vector<float> products(const Kernels& kernels) {
    constexpr std::size_t tokens = 21, rows = 40, columns = 160;
    std::vector<float> all;
    for (const WeightType type :
         {WeightType::q4_0, WeightType::q4_1, WeightType::q8_0, WeightType::q4_k, WeightType::q5_k,
          WeightType::q6_k, WeightType::f32, WeightType::f16, WeightType::bf16}) {
        Random random;
        const RawWeights raw(type, rows, columns, random);
        const Packed w({raw.matrix}, native_panel_format(type));
        auto values = random.floats(tokens * columns, 3.0F);
        for (std::size_t i = 5; i < values.size(); i += 71)
            values[i] *= 30.0F;
        std::vector<float> out(tokens * rows);
        const MatmulPart part{0, w.matrix.panels(), 0, tokens, out.data(), rows};
        if (is_float(w.matrix.format)) {
            kernels.matmul_float(w.matrix, {values.data(), columns}, part);
        } else {
            const Quantized x(values, columns, kernels);
            kernels.matmul_quantized(w.matrix, x.rows, part);
        }
        append(all, out);
    }
    return all;
}

std::vector<float> attended(const Kernels& kernels) {
    constexpr std::size_t tokens = 37;
    constexpr Heads shape{6, 2, 80};
    std::vector<float> all;
    for (const KvType type : {KvType::f16, KvType::f32, KvType::int8, KvType::int4}) {
        Random random;
        Cache cache(shape, type, tokens, random);
        cache.store(kernels, tokens);
        const auto q = random.floats(tokens * shape.heads * shape.head_dim, 3.0F);
        std::vector<float> out(q.size());
        attend(kernels, shape, cache, q, {0, tokens, 0, shape.heads}, out);
        append(all, out);
    }
    return all;
}

// All scores of a short answer, its tokens and their log-probabilities.
std::vector<float> answer(const model::GgufFile& file, const cpu::CpuOptions& options,
                          const model::DecodingParams& params) {
    const auto backend = make_backend(file, options);
    EngineDriver driver(*backend);
    Tokens prompt;
    for (model::TokenId id = 1; id < 60; ++id)
        prompt.push_back(id * 37 % backend->info().vocabulary_size);
    driver.open(0, params, prompt);
    std::vector<float> all = driver.prefill(0, prompt);
    for (int i = 0; i < 24; ++i) {
        driver.add_drawn(0, 1);
        const model::StepResult& result = driver.run();
        append(all, result.logits);
        all.push_back(static_cast<float>(result.sampled.front().id));
        all.push_back(result.sampled.front().logprob);
    }
    return all;
}

model::DecodingParams drawn_params() {
    model::DecodingParams params;
    params.temperature = 0.9;
    params.top_k = 200;
    params.typical_p = 0.97;
    params.top_p = 0.95;
    params.min_p = 0.001;
    params.repetition_penalty = 1.1;
    params.frequency_penalty = 0.2;
    params.seed = 20261201;
    params.logprobs = true;
    return params;
}

}  // namespace

TEST_CASE("angles have the bits that they have on every processor", "[cpu][kernels][bits]") {
    std::vector<float> all;
    for (const double base : {10000.0, 500000.0, 1e6}) {
        const RopeTable table(rope_frequencies(64, base), 1500);
        for (std::size_t position = 0; position < 1500; position += 7)
            append(all, {table.angles(position), table.angles(position) + 64});
    }
    CHECK(digest(all) == "77f4642001dce2d1");
}

TEST_CASE("every set's kernels have the bits that they have on every processor",
          "[cpu][kernels][bits]") {
    for (const Kernels* kernels : available_kernels()) {
        CAPTURE(kernels->name);
        CHECK(digest(elements(*kernels)) == "0504cd3567a9eabd");
        CHECK(digest(products(*kernels)) == "de2bee8a6baa9a17");
        CHECK(digest(attended(*kernels)) == "e92b5465aafe3e63");
    }
}

TEST_CASE("a model's scores and draws have the bits that they have on every processor",
          "[cpu][backend][bits]") {
    const model::GgufFile* file = stories_gguf();
    if (file == nullptr) return;
    cpu::CpuOptions options = small_options();
    CHECK(digest(answer(*file, options, drawn_params())) == "c5795d8cab5db04a");
    options.arithmetic = cpu::Arithmetic::float32;
    CHECK(digest(answer(*file, options, drawn_params())) == "fcc3852e5f64f9eb");
    options.arithmetic = cpu::Arithmetic::native;
    options.kv_type = cpu::KvType::int4;
    options.window = {24, 4};
    CHECK(digest(answer(*file, options, drawn_params())) == "8b5b87d0e5a7625a");
}

}  // namespace troupe::test
