// Every architecture against transformers, and the promises for each: the same scores whatever the
// batch, the cut of the prompt, threads and instruction set.
#include <cmath>

#include "tests/cpu/architecture_models.hpp"
#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"

namespace troupe::test {
namespace {

using model::TensorType;

cpu::CpuOptions tiny_options(cpu::Arithmetic arithmetic) {
    cpu::CpuOptions options;
    options.threads = 2;
    options.arithmetic = arithmetic;
    options.kv_pages = 64;
    options.slots_max = 8;
    options.tokens_per_step_max = 64;
    return options;
}

// A model's file with its bytes.
struct TinyModel {
    boost::json::value reference;
    std::vector<std::byte> bytes;
    model::GgufFile file;
    Tokens tokens;

    TinyModel(const std::string& name, TensorType type)
        : reference(read_architecture(name)),
          bytes(architecture_gguf(reference, type)),
          file(model::GgufFile::parse(bytes).value()),
          tokens(to_vector<model::TokenId>(reference.at("tokens"))) {}
};

std::vector<float> scores_of(const TinyModel& tiny, const cpu::CpuOptions& options,
                             std::uint32_t count, std::uint32_t chunk) {
    const auto backend = make_backend(tiny.file, options);
    EngineDriver engine(*backend);
    engine.open(0);
    return engine.prefill(0, tiny.tokens, count, chunk);
}

// Quantised matrices of 32 columns, from the f32 ones; coarse, but any numbers will do here.
std::vector<std::byte> as_q8_0(const boost::json::value& reference) {
    const auto bytes = architecture_gguf(reference, TensorType::f32);
    const auto file = model::GgufFile::parse(bytes).value();
    GgufWriter out;
    for (const model::GgufValue& value : file.values()) {
        ByteWriter payload;
        if (value.type == model::GgufType::string) payload.u64(value.bytes.size());
        out.value(value.key, value.type, payload.raw(value.bytes));
    }
    for (const model::GgufTensor& tensor : file.tensors()) {
        std::vector<std::int64_t> dims(tensor.dims.begin(), tensor.dims.begin() + tensor.dim_count);
        if (tensor.dim_count == 1) {
            out.tensor(tensor.name, 0, dims, tensor.bytes);
            continue;
        }
        ByteWriter blocks;
        for (std::size_t at = 0; at < tensor.element_count(); at += 32) {
            blocks.number(model::float_to_half(0x1p-7F));
            for (std::size_t i = at; i < at + 32; ++i) {
                float value = 0;
                std::memcpy(&value, tensor.bytes.data() + i * sizeof value, sizeof value);
                blocks.number(static_cast<std::int8_t>(value * 127));
            }
        }
        out.tensor(tensor.name, static_cast<std::uint32_t>(TensorType::q8_0), dims, blocks.bytes());
    }
    return out.bytes();
}

// The promises of one model, with its cache in one form.
void check_invariance(const TinyModel& tiny, cpu::KvType kv_type) {
    cpu::CpuOptions options = tiny_options(cpu::Arithmetic::native);
    options.kv_type = kv_type;
    const auto alone = scores_of(tiny, options, 1, 0);
    CHECK(scores_of(tiny, options, 1, 7) == alone);
    for (const cpu::Kernels* kernels : cpu::available_kernels()) {
        CAPTURE(kernels->name);
        options.instruction_set = kernels->name;
        options.threads = options.threads == 1 ? 3 : 1;
        CHECK(scores_of(tiny, options, 1, 11) == alone);
    }

    const auto backend = make_backend(tiny.file, options);
    EngineDriver engine(*backend);
    engine.shuffle_pages(3);
    for (model::SlotId slot = 0; slot < 3; ++slot)
        engine.open(slot);
    const std::span prompt(tiny.tokens);
    engine.add(0, prompt.subspan(0, 30));
    engine.add(1, prompt.subspan(5, 9));
    engine.run();
    engine.add(2, prompt.subspan(9, 17));
    engine.add(1, prompt.subspan(14, 1));
    engine.add(0, prompt.subspan(30), 0, 1);
    CHECK(engine.run().logits == alone);
}

// A prompt of which another sequence, with another end, has computed the first pages: after each of
// the other tokens the bits that the prompt has by itself, and the same answer.
void check_reuse(const TinyModel& tiny, const cpu::CpuOptions& options, std::size_t pages) {
    const std::size_t begin = pages * model::kPageTokens;
    REQUIRE(begin < tiny.tokens.size());
    const Tokens rest(tiny.tokens.begin() + static_cast<std::ptrdiff_t>(begin), tiny.tokens.end());
    const auto rows = static_cast<std::uint32_t>(rest.size());
    const auto fresh = make_backend(tiny.file, options);
    EngineDriver alone(*fresh);
    alone.open(0);
    const auto scores = alone.prefill(0, tiny.tokens, rows);
    const auto answer = alone.continue_greedily(0, 20);

    Tokens other(tiny.tokens.begin(), tiny.tokens.begin() + static_cast<std::ptrdiff_t>(begin));
    other.insert(other.end(), rest.rbegin(), rest.rend());
    const auto backend = make_backend(tiny.file, options);
    EngineDriver engine(*backend);
    engine.shuffle_pages(5);
    engine.open(0);
    engine.prefill(0, other, 1, 11);
    engine.continue_greedily(0, 9);
    for (const std::uint32_t chunk : {0U, 5U}) {
        const model::SlotId slot = 1 + chunk;
        engine.reuse(0, slot, pages);
        CHECK(engine.prefill(slot, rest, rows, chunk) == scores);
        CHECK(engine.continue_greedily(slot, answer.size()) == answer);
    }
}

}  // namespace

TEST_CASE("Tiny models of each architecture have the scores that transformers gives them",
          "[cpu][architectures]") {
    for (const char* name : kArchitectureModels) {
        for (const TensorType type : {TensorType::f32, TensorType::f16}) {
            CAPTURE(name, to_string(type));
            const TinyModel tiny(name, type);
            const auto& rows = tiny.reference.at("scores").as_array();
            const auto got = scores_of(tiny, tiny_options(cpu::Arithmetic::float32),
                                       static_cast<std::uint32_t>(rows.size()), 0);
            double largest = 0, furthest = 0;
            std::size_t at = 0;
            for (const auto& row : rows) {
                for (const float expected : to_vector<float>(row)) {
                    largest = std::max(largest, std::abs(double{expected}));
                    furthest = std::max(furthest, std::abs(double{expected} - got.at(at++)));
                }
            }
            CHECK(at == got.size());
            CHECK(furthest <= 2e-5 * largest);
        }
    }
}

TEST_CASE("No architecture's scores depend on batch, cut, threads or instruction set",
          "[cpu][architectures]") {
    for (const char* name : kArchitectureModels) {
        TinyModel tiny(name, TensorType::f32);
        const auto bytes = as_q8_0(tiny.reference);
        tiny.file = model::GgufFile::parse(bytes).value();
        for (const cpu::KvType kv_type : {cpu::KvType::f16, cpu::KvType::int8}) {
            CAPTURE(name, to_string(kv_type));
            check_invariance(tiny, kv_type);
        }
    }
}

TEST_CASE("Every architecture goes on from another's pages as from its own",
          "[cpu][architectures]") {
    for (const char* name : kArchitectureModels) {
        TinyModel tiny(name, TensorType::f32);
        const auto bytes = as_q8_0(tiny.reference);
        tiny.file = model::GgufFile::parse(bytes).value();
        for (const cpu::KvType kv_type : cpu::kv_types) {
            CAPTURE(name, to_string(kv_type));
            cpu::CpuOptions options = tiny_options(cpu::Arithmetic::native);
            options.kv_type = kv_type;
            for (std::size_t pages = 1; pages * model::kPageTokens < tiny.tokens.size(); ++pages)
                check_reuse(tiny, options, pages);
        }
    }
}

TEST_CASE("Once a model of any architecture is there, all of its file was told as loaded",
          "[cpu][architectures]") {
    for (const char* name : kArchitectureModels) {
        CAPTURE(name);
        const TinyModel tiny(name, TensorType::f32);
        model::LoadProgress progress;
        progress.expect(tiny.file.size_bytes());
        cpu::CpuOptions options = tiny_options(cpu::Arithmetic::native);
        options.progress = &progress;
        const auto backend = make_backend(tiny.file, options);
        CHECK(progress.loaded() > 0.99);  // each piece is rounded down
        CHECK(progress.loaded() <= 1);
    }
}

TEST_CASE("An architecture with windows of its own keeps them under a narrower one",
          "[cpu][architectures]") {
    const TinyModel tiny("gemma2", TensorType::f32);
    cpu::CpuOptions options = tiny_options(cpu::Arithmetic::float32);
    const auto whole = scores_of(tiny, options, 1, 0);
    options.window = {24, 4};
    const auto narrow = scores_of(tiny, options, 1, 0);
    CHECK(narrow != whole);
    CHECK(scores_of(tiny, options, 1, 5) == narrow);
}

}  // namespace troupe::test
