// Files that are written: what is copied, what is made of other types, and what is refused.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "model/gguf_builder.hpp"
#include "model/gguf_writer.hpp"
#include "model/quantise.hpp"
#include "tests/support/model_folder.hpp"

namespace troupe::model {
namespace {

std::vector<float> ramp(std::size_t count, float first = 0) {
    std::vector<float> numbers;
    for (std::size_t i = 0; i < count; ++i)
        numbers.push_back(std::sin(static_cast<float>(i) + first));
    return numbers;
}

// A file of each kind of value, and of tensors.
std::vector<std::byte> sample() {
    test::GgufWriter out;
    out.string("general.architecture", "llama").u32("a", 7).f32("b", 0.5F).boolean("c", true);
    out.strings("d", {"x", "", "yz"}).array<std::int32_t>("e", GgufType::i32, {-1, 2});
    out.f32_tensor("blk.0.attn_norm.weight", {64}, ramp(64));
    out.f32_tensor("blk.0.ffn_gate_inp.weight", {64, 2}, ramp(128));
    out.f32_tensor("blk.0.attn_q.weight", {64, 3}, ramp(192));
    out.f32_tensor("odd.weight", {5, 2}, ramp(10));
    return out.bytes();
}

GgufFile written(const GgufFile& file, const test::TemporaryFolder& folder,
                 const GgufWriteOptions& options) {
    const auto path = folder.path() / "out.gguf";
    std::filesystem::remove(path);
    const auto done = write_gguf(file, path, options);
    if (!done) FAIL(done.error().message);
    CHECK_FALSE(std::filesystem::exists(path.string() + ".part"));
    return GgufFile::open(path).value();
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

TEST_CASE("A file that keeps its types keeps every bit", "[model][gguf][writer]") {
    const test::TemporaryFolder folder;
    const auto bytes = sample();
    const GgufFile file = GgufFile::parse(bytes).value();
    const GgufFile copy = written(file, folder, {});
    CHECK(copy.version() == 3);
    REQUIRE(copy.values().size() == file.values().size());
    for (const GgufValue& value : file.values()) {
        CAPTURE(value.key);
        const GgufValue* other = copy.find(value.key);
        REQUIRE(other != nullptr);
        CHECK(other->type == value.type);
        CHECK(other->is_array == value.is_array);
        CHECK(other->count == value.count);
        CHECK(same_bytes(other->bytes, value.bytes));
    }
    REQUIRE(copy.tensors().size() == file.tensors().size());
    for (const GgufTensor& tensor : file.tensors()) {
        CAPTURE(tensor.name);
        const GgufTensor* other = copy.find_tensor(tensor.name);
        REQUIRE(other != nullptr);
        CHECK(other->type == tensor.type);
        CHECK(other->dims == tensor.dims);
        CHECK(other->dim_count == tensor.dim_count);
        CHECK(same_bytes(other->bytes, tensor.bytes));
    }
}

TEST_CASE("Matrices change their type; vectors, routers and odd rows do not become blocks",
          "[model][gguf][writer]") {
    const test::TemporaryFolder folder;
    const auto bytes = sample();
    const GgufFile file = GgufFile::parse(bytes).value();
    const GgufFile made = written(file, folder, {find_quantisation_recipe("q8_0")});
    CHECK(made.find_tensor("blk.0.attn_norm.weight")->type == TensorType::f32);
    CHECK(made.find_tensor("blk.0.ffn_gate_inp.weight")->type == TensorType::f32);
    CHECK(made.find_tensor("odd.weight")->type == TensorType::f16);
    const GgufTensor& matrix = *made.find_tensor("blk.0.attn_q.weight");
    REQUIRE(matrix.type == TensorType::q8_0);
    std::vector<std::byte> expected(matrix.bytes.size());
    quantise(TensorType::q8_0, ramp(192), expected);
    CHECK(same_bytes(matrix.bytes, expected));
}

TEST_CASE("What was written is told by type, and by the type that did not fit",
          "[model][gguf][writer]") {
    const test::TemporaryFolder folder;
    test::GgufWriter out;
    out.f32_tensor("a.weight", {256, 2}, ramp(512)).f32_tensor("b.weight", {96, 2}, ramp(192));
    out.f32_tensor("c.weight", {256}, ramp(256)).f32_tensor("d.weight", {512, 1}, ramp(512));
    const auto bytes = out.bytes();
    const GgufFile file = GgufFile::parse(bytes).value();
    const auto path = folder.path() / "out.gguf";
    const auto told = write_gguf(file, path, {find_quantisation_recipe("q4_k")}).value();
    REQUIRE(told.size() == 3);
    CHECK(told[0].chosen == ChosenType{TensorType::f32, TensorType::f32});
    CHECK(told[1].chosen == ChosenType{TensorType::q4_k, TensorType::q4_k});
    CHECK(told[1].count == 2);
    CHECK(told[1].bytes == 4 * 144);
    CHECK(told[2].chosen == ChosenType{TensorType::q5_0, TensorType::q4_k});
    CHECK(told[2].bytes == 6 * 22);
    const GgufFile made = GgufFile::open(path).value();
    const GgufTensor& matrix = *made.find_tensor("d.weight");
    REQUIRE(matrix.type == TensorType::q4_k);
    std::vector<std::byte> expected(matrix.bytes.size());
    quantise(TensorType::q4_k, ramp(512), expected);
    CHECK(same_bytes(matrix.bytes, expected));
}

TEST_CASE("Rows are put into order and experts onto a stack", "[model][gguf][writer]") {
    const test::TemporaryFolder folder;
    const auto numbers = ramp(8);
    GgufBuilder in;
    in.set_string("general.architecture", "llama");
    const auto add = [&](std::string_view name, RowOrder order) {
        GgufTensor tensor{.name = name, .dim_count = 2, .bytes = {}, .order = order};
        tensor.dims = {2, 4, 1, 1};
        tensor.bytes = std::as_bytes(std::span(numbers));
        return in.add_tensor(tensor);
    };
    REQUIRE(add("blk.0.attn_q.weight", {4, 4}).has_value());
    REQUIRE(add("blk.0.ffn_up.1.weight", {}).has_value());
    REQUIRE(add("blk.0.ffn_up.0.weight", {}).has_value());
    for (const char* name : {"as-is", "f16"}) {
        const QuantisationRecipe* recipe = find_quantisation_recipe(name);
        const GgufFile made = written(in.file(), folder, {recipe});
        REQUIRE(made.tensors().size() == 2);
        const GgufTensor& matrix = *made.find_tensor("blk.0.attn_q.weight");
        std::vector<float> got(8), whole(8);
        dequantise(matrix.type, matrix.bytes, got);
        if (recipe != nullptr) {
            std::vector<std::byte> halves(16);
            quantise(recipe->type, numbers, halves);
            dequantise(recipe->type, halves, whole);
        } else {
            whole = numbers;
        }
        CHECK(got == std::vector{whole[0], whole[1], whole[4], whole[5], whole[2], whole[3],
                                 whole[6], whole[7]});
        const GgufTensor* stack = made.find_tensor("blk.0.ffn_up_exps.weight");
        REQUIRE(stack != nullptr);
        CHECK(stack->dims == std::array<std::uint64_t, 4>{2, 4, 2, 1});
        CHECK(same_bytes(stack->bytes.first(stack->bytes.size() / 2),
                         stack->bytes.subspan(stack->bytes.size() / 2)));
    }
}

TEST_CASE("What cannot be written is refused and leaves nothing behind", "[model][gguf][writer]") {
    const test::TemporaryFolder folder;
    const auto there = folder.write("there.gguf", std::string_view("x"));
    const auto bytes = sample();
    const GgufFile file = GgufFile::parse(bytes).value();
    CHECK(write_gguf(file, there, {}).error().message == there.string() + " is there already");
    CHECK(write_gguf(file, folder.path() / "no/out.gguf", {}).error().kind == ErrorKind::io);

    auto numbers = ramp(64);
    numbers[40] = std::numeric_limits<float>::infinity();
    const auto bad = test::GgufWriter{}.f32_tensor("m.weight", {32, 2}, numbers).bytes();
    const auto path = folder.path() / "out.gguf";
    const auto refused =
        write_gguf(GgufFile::parse(bad).value(), path, {find_quantisation_recipe("q4_0")});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message == "tensor m.weight: row 1 holds a number that is not finite");
    auto wide = ramp(512);
    wide[511] = std::numeric_limits<float>::quiet_NaN();
    const auto worse = test::GgufWriter{}.f32_tensor("m.weight", {256, 2}, wide).bytes();
    for (const char* name : {"q4_k", "q5_k", "q6_k"}) {
        const auto also = GgufFile::parse(worse).value();
        CHECK(write_gguf(also, path, {find_quantisation_recipe(name)}).error().message ==
              refused.error().message);
    }
    CHECK_FALSE(std::filesystem::exists(path));
    CHECK_FALSE(std::filesystem::exists(path.string() + ".part"));
}

}  // namespace troupe::model
