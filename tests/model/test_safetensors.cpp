// safetensors files: what is in them, and every way to be wrong.
#include <catch2/catch.hpp>

#include "model/safetensors.hpp"
#include "tests/support/model_folder.hpp"

namespace troupe::model {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

const std::vector<std::byte> kData(16);

std::string refusal(std::span<const std::byte> file) {
    const auto tensors = parse_safetensors(file);
    return tensors ? "(accepted)" : tensors.error().message;
}

std::string refusal(std::string_view header, std::size_t data_bytes = 16) {
    return refusal(test::safetensors_bytes(header, std::span(kData).first(data_bytes)));
}

}  // namespace

TEST_CASE("The tensors of a safetensors file are views of its bytes", "[model][safetensors]") {
    const std::vector<float> numbers{1, 2, 3, 4, 5, 6};
    const auto file = test::SafetensorsWriter{}
                          .tensor("b", "F32", {2, 3}, std::as_bytes(std::span(numbers)))
                          .tensor("a", "BF16", {4}, std::span(kData).first(8))
                          .tensor("none", "I32", {0, 7}, {})
                          .tensor("one", "I64", {}, std::span(kData).first(8))
                          .bytes();
    const auto tensors = parse_safetensors(file);
    REQUIRE(tensors.has_value());
    REQUIRE(tensors->size() == 4);
    const SafeTensor& first = tensors->front();
    CHECK(first.name == "b");
    CHECK(first.type == TensorType::f32);
    CHECK(first.shape == std::vector<std::uint64_t>{2, 3});
    CHECK(first.bytes.size() == 24);
    CHECK(first.bytes.data() + 40 == file.data() + file.size());
    CHECK(refusal(R"({"__metadata__":{"format":"pt"}})", 0) == "(accepted)");
}

TEST_CASE("A safetensors header that cannot be is refused", "[model][safetensors]") {
    CHECK_THAT(refusal(std::span(kData).first(7)), Contains("shorter"));
    CHECK_THAT(refusal(test::ByteWriter{}.u64(100).raw("{}").bytes()),
               StartsWith("a header of 100 bytes cannot be in a file of 10"));
    CHECK_THAT(refusal(test::ByteWriter{}.u64(~0ULL).raw("{}").bytes()), Contains("cannot be"));
    CHECK_THAT(refusal(std::as_bytes(std::span(std::string_view("version https://git-lfs.com")))),
               StartsWith("this is a Git LFS pointer"));
    CHECK(refusal("[]") == "the header does not begin with {");
    CHECK_THAT(refusal(R"({"a":)"), StartsWith("the header: "));
    CHECK(refusal("{}") == "16 bytes at the end belong to no tensor");
    CHECK(refusal(" {}") == "the header does not begin with {");
    CHECK(refusal("{ }  \n", 0) == "(accepted)");  // blanks are how writers align what follows
    CHECK(refusal("{") == "the header: it ends within a tensor");
    CHECK(refusal(R"({"a":{"dtype":"F32)") == "the header: it ends within a tensor");
    CHECK(refusal(R"({"a)") == "the header: it ends within a tensor");
    CHECK(refusal("{}{}") == "the header: it is no JSON object");
    CHECK(refusal("{,}") == "the header: it is no JSON object");
    CHECK(refusal("{]") == "the header: it is no JSON object");
    CHECK_THAT(refusal(R"({"a":1 "b":2})"), StartsWith("the header: "));
    CHECK_THAT(refusal("{1}"), StartsWith("the header: "));
    CHECK_THAT(refusal(R"({"a":[}])"), StartsWith("the header: "));
}

TEST_CASE("Names in a safetensors header may hold what else is JSON", "[model][safetensors]") {
    const std::string zero = R"(:{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
    const auto named = [&](const std::string& json) {
        const auto file = test::safetensors_bytes("{" + json + zero + "}", {});
        const auto tensors = parse_safetensors(file);
        return tensors ? tensors->at(0).name : tensors.error().message;
    };
    CHECK(named(R"("a{,}[")") == "a{,}[");
    CHECK(named(R"( "a\"},\\" )") == "a\"},\\");
    CHECK(named(R"("\u0061")") == "a");
    CHECK(refusal(R"({"a")" + zero + R"(,"\u0061")" + zero + "}", 0) ==
          "tensor \"a\": the name occurs twice");
}

TEST_CASE("A safetensors header that goes on about one tensor is refused before it is parsed",
          "[model][safetensors]") {
    const std::string many = std::string(20'000, '[') + std::string(20'000, ']');
    CHECK_THAT(refusal(R"({"a":)" + many + "}"),
               StartsWith("the header: 40004 bytes of it are about one tensor"));
    CHECK(refusal(R"({ "__metadata__":)" + many + "}", 0) == "(accepted)");
}

TEST_CASE("A tensor of a safetensors file that contradicts itself is named",
          "[model][safetensors]") {
    const auto one = [](std::string_view rest) {
        return refusal("{\"a\":{" + std::string(rest) + "}}");
    };
    CHECK(one(R"("shape":[4],"data_offsets":[0,16])") == "tensor \"a\": it has no dtype");
    CHECK(one(R"("dtype":"F8_E4M3","shape":[16],"data_offsets":[0,16])") ==
          "tensor \"a\": dtype F8_E4M3 is not supported");
    CHECK(one(R"("dtype":"F32","data_offsets":[0,16])") == "tensor \"a\": it has no shape");
    CHECK(one(R"("dtype":"F32","shape":[4,-1],"data_offsets":[0,16])") ==
          "tensor \"a\": shape[1] is no count");
    CHECK(one(R"("dtype":"F32","shape":[4.5],"data_offsets":[0,16])") ==
          "tensor \"a\": shape[0] is no count");
    CHECK_THAT(one(R"("dtype":"F32","shape":[4294967296,4294967296,0],"data_offsets":[0,0])"),
               Contains("shape[1] is 4294967296, which makes the element count overflow"));
    CHECK_THAT(one(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"),
               Contains("are not the 0 bytes"));
    CHECK_THAT(one(R"("dtype":"F32","shape":[4],"data_offsets":[0])"), Contains("not two counts"));
    CHECK_THAT(one(R"("dtype":"F32","shape":[4],"data_offsets":[16,0])"), Contains("do not lie"));
    CHECK_THAT(one(R"("dtype":"F32","shape":[5],"data_offsets":[0,20])"), Contains("do not lie"));
    CHECK(one(R"("dtype":"F32","shape":[3],"data_offsets":[0,16])") ==
          "tensor \"a\": 3 elements of F32 are not the 16 bytes of its data_offsets");
}

TEST_CASE("Overlaps, holes and names that occur twice are refused", "[model][safetensors]") {
    const std::string a = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
    CHECK(refusal(a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})") ==
          "(accepted)");
    CHECK(refusal(a + R"(,"b":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}})") ==
          "tensor \"b\": its bytes overlap those of the one before");
    CHECK(refusal(a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}})") ==
          "tensor \"b\": its bytes leave a hole behind those of the one before");
    CHECK(refusal(a + "}") == "8 bytes at the end belong to no tensor");
    CHECK(refusal(a + R"(,"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})") ==
          "tensor \"a\": the name occurs twice");
}

}  // namespace troupe::model
