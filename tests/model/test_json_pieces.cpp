// Large JSON texts taken apart: what comes out together is what was in, and nothing that is no JSON
// passes.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "model/json_pieces.hpp"

namespace troupe::model {
namespace {

std::vector<std::string> pieces_of(std::string_view text) {
    std::vector<std::string> out;
    JsonPieces pieces(text);
    auto found = pieces.next();
    for (; found == JsonPieces::Next::piece; found = pieces.next())
        out.emplace_back(pieces.piece());
    if (found == JsonPieces::Next::unfinished) out.emplace_back("(unfinished)");
    if (found == JsonPieces::Next::malformed) out.emplace_back("(malformed)");
    return out;
}

using Texts = std::vector<std::string>;

std::string error_of(const Result<>& result) {
    return result ? "" : result.error().message;
}

std::string check(std::string_view text) {
    return error_of(
        each_element(text, "it", [](const simdjson::dom::element&) { return Result<>(); }));
}

}  // namespace

TEST_CASE("Pieces end at the commas of their container alone", "[model][json]") {
    CHECK(pieces_of("{}").empty());
    CHECK(pieces_of(" [ ] ").empty());
    CHECK(pieces_of(R"({"a":1,"b":[1,{"c":2}]})") == Texts{R"("a":1)", R"("b":[1,{"c":2}])"});
    CHECK(pieces_of(R"(["],[\"{", "\\"])") == Texts{R"("],[\"{")", R"( "\\")"});
    CHECK(count_pieces(R"({"a":[1,2],"b":3})") == 2);
    CHECK(count_pieces("[[],[],[") == 2);
    CHECK(count_pieces("") == 0);
    CHECK(pieces_of("") == Texts{"(malformed)"});
    CHECK(pieces_of("7") == Texts{"(malformed)"});
    CHECK(pieces_of("[") == Texts{"(unfinished)"});
    CHECK(pieces_of(R"({"a)") == Texts{"(unfinished)"});
    CHECK(pieces_of(R"(["\)") == Texts{"(unfinished)"});
    CHECK(pieces_of("[}") == Texts{"(malformed)"});
    CHECK(pieces_of("[1,]") == Texts{"1", "(malformed)"});
    CHECK(pieces_of("[,1]") == Texts{"(malformed)"});
    CHECK(pieces_of("[1]]") == Texts{"1", "(malformed)"});
    CHECK(pieces_of("{}{}") == Texts{"(malformed)"});
}

TEST_CASE("Parts hold every member once and in order", "[model][json]") {
    std::string object = "{", array = "[";
    constexpr std::int64_t kCount = 30'000;
    for (std::int64_t i = 0; i < kCount; ++i) {
        object += fmt::format("{}\n  \"n\\u0061me {}\" : {}", i == 0 ? "" : ",", i, i);
        array += fmt::format("{}[{},\"\"]", i == 0 ? "" : " , ", i);
    }
    object += "}";
    array += "\n]";
    REQUIRE(object.size() > 8 * JsonParts::kPartBytesMax);
    std::int64_t next = 0;
    const auto member = [&](const simdjson::dom::key_value_pair& field) -> Result<> {
        const bool right = field.key == fmt::format("name {}", next) &&
                           std::int64_t(field.value.get_int64()) == next;
        ++next;
        return right ? Result<>() : invalid_input(std::string(field.key));
    };
    CHECK(error_of(each_member(object, "it", member)).empty());
    CHECK(next == kCount);
    next = 0;
    const auto element = [&](const simdjson::dom::element& one) -> Result<> {
        return std::int64_t(one.at(0).get_int64()) == next++ ? Result<>() : invalid_input("other");
    };
    CHECK(error_of(each_element(array, "it", element)).empty());
    CHECK(next == kCount);
    next = 7;
    CHECK(error_of(each_element(array, "it", element)) == "other");
}

TEST_CASE("What is no JSON is refused, whatever reads it", "[model][json]") {
    CHECK(check("[1,2]").empty());
    CHECK(check(R"({"a":1})").empty());
    for (const char* text : {"", "1", "[1,2", "[1 2]", "[1,,2]", "{1}", R"({"a"})", "[[1}]", "[01]",
                             "[\"\xFF\"]", "[\"\n\"]", "[1] x", "[nul]"}) {
        CAPTURE(text);
        CHECK_THAT(check(text), Catch::StartsWith("it: "));
    }
    const std::string fits(JsonParts::kPartBytesMax - 2, 'a');
    CHECK(check(fmt::format("[0,\"{}\",1]", fits)).empty());
    CHECK_THAT(check(fmt::format("[0,\"a{}\",1]", fits)),
               Catch::StartsWith("it: 65537 bytes of it are one value: "));
}

TEST_CASE("Members are cut out where they are containers, and the rest is bounded",
          "[model][json]") {
    const auto cut = cut_members(R"( {"a":1, "big" : [1,2] ,"b":{"big":[3]},"big":[4],"c":null} )",
                                 "it", {"c", "big", "none"}, 100);
    REQUIRE(cut.has_value());
    CHECK(cut->rest == R"({"a":1,"b":{"big":[3]},"big":[4],"c":null})");
    CHECK(cut->values == std::vector<std::string_view>{"", "[1,2]", ""});
    CHECK(cut_members("{}", "it", {"a"}, 100)->rest == "{}");
    const auto error = [](std::string_view text) {
        const auto result = cut_members(text, "it", {"big", "large"}, 100);
        return result ? "" : result.error().message;
    };
    CHECK(error("[]") == "it: it is no JSON object");
    CHECK(error(R"({"big":[1,2})") == "it: it ends too early");
    CHECK(error(R"({"big":[1,2]]})") == "it: it is no JSON object");
    CHECK(error(fmt::format(R"({{"big":["{}"]}})", std::string(200, 'a'))).empty());
    CHECK(error(fmt::format(R"({{"b":["{}"]}})", std::string(200, 'a'))) ==
          "it: beside big and large it has more than 100 bytes");
}

}  // namespace troupe::model
