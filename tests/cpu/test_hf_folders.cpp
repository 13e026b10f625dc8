// Folders of every architecture, as transformers saved them, against its scores and against the
// same model as a GGUF, bit for bit; in parts, in other types, damaged.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <random>

#include "model/hf_folder.hpp"
#include "model/safetensors.hpp"
#include "tests/cpu/architecture_models.hpp"
#include "tests/cpu/backend_fixture.hpp"
#include "tests/cpu/engine_driver.hpp"
#include "tests/support/model_folder.hpp"

namespace troupe::test {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;

fs::path folder_of(const std::string& name) {
    return test_data("hugging_face") / name;
}

// Models that differ in their config.json alone share the weights.
fs::path weights_of(const std::string& name) {
    const bool is_llama = name == "llama-linear" || name == "mistral";
    return folder_of(is_llama ? "llama" : name) / "model.safetensors";
}

std::vector<float> scores_of(const model::GgufFile& file, const boost::json::value& reference) {
    cpu::CpuOptions options;
    options.threads = 2;
    options.arithmetic = cpu::Arithmetic::float32;
    options.kv_pages = 64;
    options.slots_max = 8;
    options.tokens_per_step_max = 64;
    const auto backend = make_backend(file, options);
    EngineDriver engine(*backend);
    engine.open(0);
    const auto count = static_cast<std::uint32_t>(reference.at("scores").as_array().size());
    return engine.prefill(0, to_vector<model::TokenId>(reference.at("tokens")), count, 0);
}

// The largest difference to transformers' scores, by the largest of those.
double distance(const std::vector<float>& got, const boost::json::value& reference) {
    double largest = 0, furthest = 0;
    std::size_t at = 0;
    for (const auto& row : reference.at("scores").as_array()) {
        for (const float expected : to_vector<float>(row)) {
            largest = std::max(largest, std::abs(double{expected}));
            furthest = std::max(furthest, std::abs(double{expected} - got.at(at++)));
        }
    }
    return furthest / largest;
}

model::GgufFile open_folder(const fs::path& path) {
    auto file = model::open_hf_folder(path);
    if (!file) FAIL(file.error().message);
    return std::move(*file);
}

// The llama in two parts, with an index.
struct SplitLlama {
    TemporaryFolder folder;
    std::string index = R"({"weight_map":{)";

    SplitLlama() {
        folder.copy(folder_of("llama") / "config.json");
        const auto file = model::MappedFile::open(weights_of("llama"));
        const auto tensors = model::parse_safetensors(file->bytes()).value();
        for (const bool first : {true, false}) {
            const std::string name = first ? "a.safetensors" : "b.safetensors";
            SafetensorsWriter part;
            for (std::size_t i = first ? 0 : 1; i < tensors.size(); i += 2) {
                part.tensor(tensors[i].name, "F16", tensors[i].shape, tensors[i].bytes);
                index += '"' + tensors[i].name + R"(":")" + name + R"(",)";
            }
            folder.write(name, part.bytes());
        }
        index.back() = '}';
        write_index(index);
    }
    void write_index(const std::string& text) const {
        folder.write("model.safetensors.index.json", text + "}");
    }
    [[nodiscard]] std::string refusal() const {
        const auto file = model::open_hf_folder(folder.path());
        return file ? "(accepted)" : file.error().message;
    }
};

// A matrix of drawn 4-bit numbers: as GPTQ stores it, and its values.
struct DrawnMatrix {
    std::vector<std::uint32_t> weights, zeros;  // [columns / 8][rows], [rows / 8]
    std::vector<std::uint16_t> scales;          // [rows]
    std::vector<float> values;                  // [rows][columns]

    DrawnMatrix(std::uint64_t rows, std::uint64_t columns, std::mt19937& random)
        : weights(columns / 8 * rows), zeros(rows / 8), values(rows * columns) {
        for (std::uint64_t row = 0; row < rows; ++row) {
            const int zero = 1 + static_cast<int>(random() % 15);
            zeros[row / 8] |= static_cast<std::uint32_t>(zero - 1) << (4 * (row % 8));
            scales.push_back(model::float_to_half(static_cast<float>(1 + random() % 20) / 500));
            for (std::uint64_t column = 0; column < columns; ++column) {
                const std::uint32_t quant = random() % 16;
                weights[column / 8 * rows + row] |= quant << (4 * (column % 8));
                values[row * columns + column] = model::half_to_float(scales.back()) *
                                                 static_cast<float>(static_cast<int>(quant) - zero);
            }
        }
    }
};

std::string file_text(const fs::path& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("A folder's scores are those of transformers, and its GGUF's bit for bit",
          "[cpu][hf_folder]") {
    for (const char* name : kArchitectureModels) {
        CAPTURE(name);
        const TemporaryFolder folder;
        folder.copy(folder_of(name) / "config.json");
        folder.copy(weights_of(name));
        const auto reference = read_architecture(name);
        const auto got = scores_of(open_folder(folder.path()), reference);
        CHECK(distance(got, reference) <= 2e-5);
        const auto bytes = architecture_gguf(reference, model::TensorType::f16);
        CHECK(got == scores_of(model::GgufFile::parse(bytes).value(), reference));
    }
}

TEST_CASE("A folder's types make no difference where they hold the same numbers",
          "[cpu][hf_folder]") {
    const auto reference = read_architecture("llama");
    const auto expected = scores_of(open_folder(folder_of("llama")), reference);
    const auto file = model::MappedFile::open(weights_of("llama"));
    for (const std::string type : {"F32", "BF16"}) {
        CAPTURE(type);
        SafetensorsWriter out;
        for (const auto& tensor : model::parse_safetensors(file->bytes()).value()) {
            std::vector<float> numbers(tensor.bytes.size() / 2);
            model::dequantise(tensor.type, tensor.bytes, numbers);
            std::vector<std::uint16_t> brief;
            for (const float number : numbers)
                brief.push_back(model::float_to_bfloat16(number));
            // Norms have more digits than bfloat16 holds.
            const bool whole = type == "F32" || tensor.shape.size() == 1;
            out.tensor(tensor.name, whole ? "F32" : "BF16", tensor.shape,
                       whole ? std::as_bytes(std::span(numbers)) : std::as_bytes(std::span(brief)));
        }
        const TemporaryFolder folder;
        folder.copy(folder_of("llama") / "config.json");
        folder.write("model.safetensors", out.bytes());
        CHECK(scores_of(open_folder(folder.path()), reference) == expected);
    }
}

TEST_CASE("A folder of GPTQ weights has the scores of the numbers that they stand for",
          "[cpu][hf_folder]") {
    const auto file = model::MappedFile::open(weights_of("llama"));
    SafetensorsWriter packed, plain;
    std::mt19937 random(3);
    for (const auto& tensor : model::parse_safetensors(file->bytes()).value()) {
        const std::size_t end = tensor.name.find("_proj.weight");
        if (end == std::string::npos) {
            packed.tensor(tensor.name, "F16", tensor.shape, tensor.bytes);
            plain.tensor(tensor.name, "F16", tensor.shape, tensor.bytes);
            continue;
        }
        const std::uint64_t rows = tensor.shape[0], columns = tensor.shape[1];
        const DrawnMatrix drawn(rows, columns, random);
        const std::string base = tensor.name.substr(0, end) + "_proj.";
        packed.tensor(base + "qweight", "I32", {columns / 8, rows},
                      std::as_bytes(std::span(drawn.weights)));
        packed.tensor(base + "qzeros", "I32", {1, rows / 8}, std::as_bytes(std::span(drawn.zeros)));
        packed.tensor(base + "scales", "F16", {1, rows}, std::as_bytes(std::span(drawn.scales)));
        plain.tensor(tensor.name, "F32", tensor.shape, std::as_bytes(std::span(drawn.values)));
    }
    const std::string config = file_text(folder_of("llama") / "config.json");
    const TemporaryFolder quantised, whole;
    quantised.write("config.json", R"({"quantization_config":{"quant_method":"gptq","bits":4},)" +
                                       config.substr(config.find('{') + 1));
    quantised.write("model.safetensors", packed.bytes());
    whole.write("config.json", config);
    whole.write("model.safetensors", plain.bytes());
    const auto model = open_folder(quantised.path());
    CHECK(model.find_tensor("blk.0.attn_q.weight")->type == model::TensorType::q8_0);
    const auto reference = read_architecture("llama");
    CHECK(scores_of(model, reference) == scores_of(open_folder(whole.path()), reference));
}

TEST_CASE("A folder in parts is the same model", "[cpu][hf_folder]") {
    const SplitLlama llama;
    const auto reference = read_architecture("llama");
    CHECK(scores_of(open_folder(llama.folder.path()), reference) ==
          scores_of(open_folder(folder_of("llama")), reference));
}

TEST_CASE("A folder's JSON that is larger than any model's is refused unread", "[cpu][hf_folder]") {
    constexpr unsigned mebibyte = 1U << 20;
    for (const auto& [name, bytes] :
         {std::pair("config.json", 5 * mebibyte), std::pair("generation_config.json", 5 * mebibyte),
          std::pair("tokenizer.json", 65 * mebibyte),
          std::pair("model.safetensors.index.json", 65 * mebibyte)}) {
        TemporaryFolder folder;
        for (const auto& entry : fs::directory_iterator(folder_of("llama")))
            folder.copy(entry.path());
        folder.write(name, std::string_view("{}"));
        fs::resize_file(folder.path() / name, bytes);  // a hole: takes no room
        const auto file = model::open_hf_folder(folder.path());
        REQUIRE_FALSE(file.has_value());
        CHECK_THAT(file.error().message,
                   Contains(fmt::format("{} has {} bytes; at most", name, bytes)));
    }
}

TEST_CASE("Parts that are missing or wrong are named", "[cpu][hf_folder]") {
    const SplitLlama llama;
    llama.write_index(llama.index.substr(0, llama.index.size() - 1) + R"(,"x":"a.safetensors"})");
    CHECK_THAT(llama.refusal(),
               EndsWith("a.safetensors: the index wants tensor \"x\" here, and it is not"));
    llama.write_index(R"({"weight_map":{"x":"../a.safetensors"})");
    CHECK_THAT(llama.refusal(), EndsWith("the file of tensor \"x\" is no name of a file"));
    llama.write_index("{");
    CHECK_THAT(llama.refusal(), EndsWith("index.json: it has no \"weight_map\""));
    llama.write_index(R"({"weight_map":{"x" "a.safetensors"})");
    CHECK_THAT(llama.refusal(), Contains("index.json: the index: "));
    llama.write_index(R"({"weight_map":{"x":"a.safetensors"}},"y":7)");
    CHECK_THAT(llama.refusal(), EndsWith("index.json: the index: it is no JSON object"));
    llama.write_index(llama.index);
    CHECK(llama.refusal() == "(accepted)");
    fs::remove(llama.folder.path() / "b.safetensors");
    CHECK_THAT(llama.refusal(), Contains("cannot open") && Contains("b.safetensors"));
    fs::remove(llama.folder.path() / "config.json");
    CHECK_THAT(llama.refusal(), Contains("cannot open") && Contains("config.json"));
}

}  // namespace troupe::test
