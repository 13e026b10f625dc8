#include <catch2/catch.hpp>

#include "tests/model/test_tokenizer_support.hpp"
#include "tests/support/paths.hpp"

using namespace troupe;
using model::TokenId;

namespace {

constexpr const char* cases_file = "7-smollm2/tokenizer-cases.json";

std::string hex_of(std::string_view bytes) {
    constexpr char digits[] = "0123456789abcdef";
    std::string hex;
    for (const char byte : bytes) {
        const auto value = static_cast<unsigned char>(byte);
        hex.push_back(digits[value >> 4]);
        hex.push_back(digits[value & 15]);
    }
    return hex;
}

std::unique_ptr<const model::Tokenizer> default_tokenizer() {
    const std::filesystem::path path = test::default_model();
    return path.empty() ? nullptr : test::open_tokenizer(path);
}

}  // namespace

TEST_CASE("the default model's tokenizer gives the reference ids", "[model][tokenizer]") {
    if (!test::have_shared(cases_file)) return;
    const auto tokenizer = default_tokenizer();
    if (!tokenizer) return;
    const auto cases = test::read_json(test::shared_data(cases_file)).at("cases").as_array();
    REQUIRE(cases.size() == 656);
    for (const auto& value : cases) {
        const auto& one = value.as_object();
        const auto text = boost::json::value_to<std::string>(one.at("t"));
        CAPTURE(text);
        const std::vector<TokenId> ids = test::encode(*tokenizer, text);
        CHECK(ids == test::ids_of(one.at("ids")));

        std::vector<TokenId> special;
        tokenizer->encode_with_control(text, special);
        const auto* expected = one.if_contains("ids_special");
        CHECK(special == test::ids_of(expected ? *expected : one.at("ids")));

        const auto* decoded = one.if_contains("decoded_hex");
        const std::string hex = hex_of(test::decode(*tokenizer, ids));
        CHECK(hex == (decoded ? std::string(decoded->as_string()) : hex_of(text)));
    }
}

TEST_CASE("the default model's special tokens are known", "[model][tokenizer]") {
    const auto tokenizer = default_tokenizer();
    if (!tokenizer) return;
    CHECK(tokenizer->vocabulary_size() == 49152);
    CHECK(tokenizer->bos() == 1);
    CHECK(tokenizer->eos() == 2);
    CHECK_FALSE(tokenizer->add_bos());
    const auto ends = tokenizer->end_tokens();
    CHECK(std::vector<TokenId>(ends.begin(), ends.end()) == std::vector<TokenId>{2, 0, 1});
    CHECK(tokenizer->find("<|im_end|>") == 2);
    CHECK_FALSE(tokenizer->find("no such piece").has_value());
    CHECK(tokenizer->piece(2) == "<|im_end|>");
    CHECK(tokenizer->bytes_of(2).empty());
    for (TokenId id = 0; id < tokenizer->vocabulary_size(); ++id) {
        CHECK(tokenizer->is_control(id) == (id <= 16));
    }
}

TEST_CASE("a million bytes without a word boundary are encoded", "[model][tokenizer]") {
    const auto tokenizer = default_tokenizer();
    if (!tokenizer) return;
    for (const char* unit : {"A", " ", "\n", "!", "7", "\xE6\xBC\xA2", "\xFF", "'", "<"}) {
        std::string text;
        while (text.size() < 1'000'000)
            text += unit;
        CAPTURE(unit);
        const std::vector<TokenId> ids = test::encode(*tokenizer, text);
        // 0xFF is one of the bytes that have no token.
        CHECK(test::decode(*tokenizer, ids) == (unit[0] == '\xFF' ? "" : text));
    }
    CHECK(test::decode(*tokenizer, test::encode(*tokenizer, std::string(43'000, 'A'))) ==
          std::string(43'000, 'A'));
}

TEST_CASE("ill-formed UTF-8 goes through byte by byte", "[model][tokenizer]") {
    const auto tokenizer = default_tokenizer();
    if (!tokenizer) return;
    const std::string text =
        "caf\xC3 \x80\x80"
        "day\xE2\x82";
    CHECK(test::decode(*tokenizer, test::encode(*tokenizer, text)) == text);
}

TEST_CASE("no user text becomes a control token", "[model][tokenizer]") {
    const auto tokenizer = default_tokenizer();
    if (!tokenizer) return;
    for (TokenId control = 0; control <= 16; ++control) {
        const std::string text = "a" + std::string(tokenizer->piece(control)) + "b";
        for (const TokenId id : test::encode(*tokenizer, text))
            CHECK_FALSE(tokenizer->is_control(id));
    }
}
