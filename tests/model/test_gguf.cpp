// GGUF files that are right: what the reader finds in them, and how its getters convert.
#include <catch2/catch.hpp>
#include <cstring>

#include "model/gguf.hpp"
#include "tests/support/gguf_writer.hpp"
#include "tests/support/paths.hpp"

using namespace troupe;
using namespace troupe::model;
using troupe::test::ByteWriter;
using troupe::test::GgufWriter;

TEST_CASE("A GGUF's metadata is read by type", "[model][gguf]") {
    GgufWriter writer;
    writer.version = GENERATE(2U, 3U);
    writer.string("general.architecture", "llama")
        .u32("n", 7)
        .scalar("small", GgufType::u8, std::uint8_t{200})
        .scalar("negative", GgufType::i64, std::int64_t{-5})
        .scalar("large", GgufType::u64, ~std::uint64_t{0})
        .f32("eps", 1e-5F)
        .scalar("wide", GgufType::f64, 0.5)
        .boolean("flag", true)
        .string("nul", std::string_view{"a\0b", 3})
        .string("empty", "")
        .strings("tokens", {"the", "", "the", std::string{"\0", 1}})
        .array<std::int8_t>("types", GgufType::i8, {1, -3})
        .array<std::uint32_t>("ids", GgufType::u32, {5, 0xFFFFFFFF})
        .array<float>("scores", GgufType::f32, {0.25F, -1.5F})
        .array<std::int32_t>("none", GgufType::i32, {});
    const auto bytes = writer.bytes();
    const auto file = GgufFile::parse(bytes);
    REQUIRE(file.has_value());

    CHECK(file->version() == writer.version);
    CHECK(file->values().size() == 15);
    CHECK(*file->get_string("general.architecture") == "llama");
    CHECK(*file->get_u32("n") == 7);
    CHECK(*file->get_u32("small") == 200);
    CHECK(**file->find_i64("negative") == -5);
    CHECK(**file->find_u64("large") == ~std::uint64_t{0});
    CHECK(*file->get_f32("eps") == 1e-5F);
    CHECK(*file->get_f32("wide") == 0.5F);
    CHECK(**file->find_bool("flag"));
    CHECK(*file->get_string("nul") == std::string_view{"a\0b", 3});
    CHECK(file->get_string("empty")->empty());
    CHECK(*file->get_strings("tokens") ==
          std::vector<std::string_view>{"the", "", "the", std::string_view{"\0", 1}});
    CHECK(**file->find_i32s("types") == std::vector<std::int32_t>{1, -3});
    CHECK(**file->find_f32s("scores") == std::vector<float>{0.25F, -1.5F});
    CHECK((*file->find_i32s("none"))->empty());
}

TEST_CASE("A GGUF getter names the key that is missing, of another type or out of range",
          "[model][gguf]") {
    const auto bytes = GgufWriter{}
                           .string("text", "x")
                           .scalar("negative", GgufType::i32, std::int32_t{-1})
                           .scalar("large", GgufType::u64, std::uint64_t{1} << 32)
                           .f32("float", 1)
                           .array<std::uint32_t>("ids", GgufType::u32, {0xFFFFFFFF})
                           .array<std::uint8_t>("bytes", GgufType::u8, {1, 2, 3})
                           .bytes();
    const auto file = GgufFile::parse(bytes);
    REQUIRE(file.has_value());
    CHECK(!file->find_u32("absent")->has_value());
    CHECK(!file->find_strings("absent")->has_value());

    const auto message = [](const auto& result) {
        REQUIRE(!result);
        return result.error().message;
    };
    CHECK(message(file->get_u32("absent")) == "metadata \"absent\" is missing");
    CHECK(message(file->get_u32("text")) ==
          "metadata \"text\" has type string, expected an integer");
    CHECK(message(file->get_u32("float")) ==
          "metadata \"float\" has type f32, expected an integer");
    CHECK(message(file->get_u32("ids")) ==
          "metadata \"ids\" has type array of u32, expected an integer");
    CHECK(message(file->get_u32("negative")) ==
          "metadata \"negative\" is -1, expected 0 to 4294967295");
    CHECK(message(file->get_u32("large")) ==
          "metadata \"large\" is 4294967296, expected 0 to 4294967295");
    CHECK(message(file->find_i32s("ids")) ==
          "metadata \"ids\" is 4294967295, expected -2147483648 to 2147483647");
    // Scores and types of the wrong element type: others read 4x past the end.
    CHECK(message(file->find_f32s("bytes")) ==
          "metadata \"bytes\" has type array of u8, expected array of f32");
    CHECK(message(file->find_strings("bytes")) ==
          "metadata \"bytes\" has type array of u8, expected array of string");
    CHECK(message(file->find_bool("text")) == "metadata \"text\" has type string, expected bool");
    CHECK(message(file->find_f32("text")) == "metadata \"text\" has type string, expected f32");
}

TEST_CASE("A GGUF's tensors are views into the file", "[model][gguf]") {
    const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
    GgufWriter writer;
    writer.alignment = GENERATE(1UL, 8UL, 32UL, 64UL);
    writer.u32("general.alignment", static_cast<std::uint32_t>(writer.alignment))
        .f32_tensor("a", {3, 2}, numbers)
        .tensor("zero", 3, {32, 0}, {})
        .f32_tensor("scalar", {}, std::span{numbers}.first(1))
        .f32_tensor("b", {1, 1, 1, 5}, std::span{numbers}.first(5));
    const auto bytes = writer.bytes();
    const auto file = GgufFile::parse(bytes);
    REQUIRE(file.has_value());

    const GgufTensor* a = file->find_tensor("a");
    REQUIRE(a != nullptr);
    CHECK(a->type == TensorType::f32);
    CHECK(a->dim_count == 2);
    CHECK(a->dims == std::array<std::uint64_t, 4>{3, 2, 1, 1});
    REQUIRE(a->bytes.size() == 24);
    CHECK(std::memcmp(a->bytes.data(), numbers.data(), 24) == 0);
    CHECK(file->find_tensor("zero")->bytes.empty());
    CHECK(file->find_tensor("zero")->element_count() == 0);
    CHECK(file->find_tensor("scalar")->bytes.size() == 4);
    const GgufTensor* b = file->find_tensor("b");
    REQUIRE(b->bytes.size() == 20);
    CHECK(std::memcmp(b->bytes.data(), numbers.data(), 20) == 0);
    CHECK(file->find_tensor("c") == nullptr);
}

TEST_CASE("A GGUF with nothing in it is a GGUF", "[model][gguf]") {
    const auto bytes = GgufWriter{}.bytes();
    const auto file = GgufFile::parse(bytes);
    REQUIRE(file.has_value());
    CHECK(file->values().empty());
    CHECK(file->tensors().empty());
}

TEST_CASE("A real GGUF of version 2 loads", "[model][gguf]") {
    const std::string name = "4-model-files/gguf-v2-falcon-vocab.gguf";
    if (!test::have_shared(name)) return;
    const auto file = GgufFile::open(test::shared_data(name));
    REQUIRE(file.has_value());
    CHECK(file->version() == 2);
    CHECK(*file->get_string("general.architecture") == "falcon");
    CHECK(file->get_strings("tokenizer.ggml.tokens")->size() == 65024);
}

TEST_CASE("The default model's tensors have the known places and sizes", "[model][gguf]") {
    const auto path = test::default_model();
    if (path.empty()) return;
    const auto file = GgufFile::open(path);
    REQUIRE(file.has_value());
    CHECK(file->version() == 3);
    CHECK(file->values().size() == 33);
    CHECK(file->tensors().size() == 272);
    CHECK(*file->get_u32("llama.block_count") == 30);
    CHECK(file->get_strings("tokenizer.ggml.tokens")->at(2) == "<|im_end|>");

    const GgufTensor* down = file->find_tensor("blk.1.ffn_down.weight");
    REQUIRE(down != nullptr);
    CHECK(down->type == TensorType::q4_1);
    CHECK(down->dims == std::array<std::uint64_t, 4>{1536, 576, 1, 1});
    CHECK(down->bytes.size() == 552960);
    const GgufTensor* first = file->find_tensor("token_embd.weight");
    CHECK(down->bytes.data() - first->bytes.data() == 32299776);
}
