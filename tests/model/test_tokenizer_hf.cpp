// tokenizer.json against the `tokenizers` package; the data is made by
// tests/tools/make_tokenizer_reference.py.
#include <catch2/catch.hpp>

#include "model/tokenizer_hf.hpp"
#include "tests/model/test_tokenizer_support.hpp"
#include "tests/support/paths.hpp"

using namespace troupe;
using model::TokenId;

namespace {

// A vocabulary of three letters with `more` among the fields of the file.
Result<model::HfTokenizer> load(const std::string& more, const std::string& config = "") {
    return model::load_hf_tokenizer(
        R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"<s>":2,"ab":3},"merges":["a b"]},)"
        R"("added_tokens":[{"id":2,"content":"<s>","special":true}])" +
            more + "}",
        config);
}

std::string error_of(const std::string& more) {
    const auto loaded = load(more);
    return loaded ? "" : loaded.error().message;
}

}  // namespace

TEST_CASE("tokenizer.json gives what the tokenizers package gives", "[model][tokenizer][hf]") {
    const auto file = test::read_json(test::test_data("tokenizers/hugging_face.json"));
    CHECK(file.at("kinds").as_array().size() == 16);
    for (const auto& kind : file.at("kinds").as_array()) {
        CAPTURE(std::string(kind.at("name").as_string()));
        const auto loaded =
            model::load_hf_tokenizer(boost::json::serialize(kind.at("tokenizer")), "");
        if (!loaded) FAIL(loaded.error().message);
        CHECK(loaded->tokenizer->add_bos() == kind.at("adds_first").as_bool());
        for (const auto& one : kind.at("cases").as_array()) {
            const auto text = boost::json::value_to<std::string>(one.at(0));
            CAPTURE(text);
            std::vector<TokenId> ids;
            loaded->tokenizer->encode_with_control(text, ids);
            CHECK(ids == test::ids_of(one.at(1)));
        }
    }
}

TEST_CASE("what tokenizer.json asks for and is not known is refused by name",
          "[model][tokenizer][hf]") {
    CHECK(error_of(R"(,"normalizer":{"type":"Nonsense"})") ==
          "the normalizer \"Nonsense\" of tokenizer.json is not known");
    CHECK(error_of(R"(,"pre_tokenizer":{"type":"Nonsense"})") ==
          "the pre-tokenizer \"Nonsense\" of tokenizer.json is not known");
    CHECK(error_of(R"(,"post_processor":{"type":"Nonsense"})") ==
          "the post-processor \"Nonsense\" of tokenizer.json is not known");
    CHECK_FALSE(error_of(R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"("},)"
                         R"("behavior":"Isolated"})")
                    .empty());
    CHECK_FALSE(error_of(R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[a&&b]"},)"
                         R"("behavior":"Isolated"})")
                    .empty());
    CHECK_FALSE(
        error_of(R"(,"normalizer":{"type":"Precompiled","precompiled_charsmap":"////"})").empty());
    for (const char* json :
         {"", "{", "[]", "{}", R"({"model":{}})", R"({"model":{"type":"BPE","vocab":{"a":-1}}})",
          R"({"model":{"type":"BPE","vocab":{"a":99999999999},"merges":[]}})",
          R"({"model":{"type":"BPE","vocab":{"a":0},"merges":["a b"]}})",
          R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[["a"]]}})",
          R"({"model":{"type":"Unigram","vocab":[["a"]]}})",
          R"({"model":{"type":"Unigram","vocab":[["a",0]],"unk_id":7}})",
          R"({"model":{"type":"WordLevel","vocab":{"a":0}}})"}) {
        CAPTURE(json);
        CHECK(model::load_hf_tokenizer(json, "").has_error());
    }
}

TEST_CASE("a tokenizer.json of many parts is one vocabulary", "[model][tokenizer][hf]") {
    std::string vocabulary = R"("a":0,"b":1,"c":2)", merges, pairs;
    std::vector<std::string> level{"a", "b", "c"};
    std::size_t id = 3;
    for (int depth = 0; depth < 7; ++depth) {
        std::vector<std::string> next;
        for (const std::string& left : level) {
            for (const char* right : {"a", "b", "c"}) {
                next.push_back(left + right);
                vocabulary += ",\n\"" + next.back() + "\": " + std::to_string(id++);
                merges += (merges.empty() ? "\"" : ",\"") + left + " " + right + "\"";
                pairs += (pairs.empty() ? "[\"" : ",[\"") + left + "\",\"" + right + "\"]";
            }
        }
        level = std::move(next);
    }
    REQUIRE(vocabulary.size() > 100'000);
    for (const std::string& written : {merges, pairs}) {
        const auto loaded = model::load_hf_tokenizer(
            R"({"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" + vocabulary +
                "},\"merges\":[" + written + "]}}",
            "");
        if (!loaded) FAIL(loaded.error().message);
        CHECK(loaded->tokenizer->vocabulary_size() == static_cast<int>(id));
        CHECK(test::encode(*loaded->tokenizer, "aab") == std::vector<TokenId>{13});
        CHECK(test::decode(*loaded->tokenizer, {static_cast<TokenId>(id - 1)}) == "cccccccc");
    }
}

TEST_CASE("what tokenizer.json has beside its lists is bounded, and must be JSON",
          "[model][tokenizer][hf]") {
    CHECK_THAT(error_of(R"(,"x":")" + std::string(5 << 20, 'x') + "\""),
               Catch::StartsWith("tokenizer.json: beside added_tokens and model it has more than"));
    CHECK_FALSE(error_of(R"(,"decoder":{"type":})").empty());
    CHECK_FALSE(error_of(R"(,"decoder":[1 2])").empty());
    CHECK_FALSE(error_of(R"(} x {"a":1)").empty());
    const auto config_error = [](const std::string& config) {
        const auto loaded = load("", config);
        return loaded ? "" : loaded.error().message;
    };
    CHECK(config_error(R"({"added_tokens_decoder":{"0":{"content":"<s>"}}})").empty());
    CHECK_THAT(config_error(R"({"added_tokens_decoder":{"0":{"content":}}})"),
               Catch::StartsWith("tokenizer_config.json: "));
    CHECK_THAT(config_error("[]"), Catch::StartsWith("tokenizer_config.json: "));
    const auto word_piece = model::load_hf_tokenizer(
        R"({"model":{"type":"WordPiece","vocab":{"a":0},"merges":[nonsense]}})", "");
    CHECK(word_piece.has_error());
}

TEST_CASE("tokenizer_config.json adds special tokens and the template", "[model][tokenizer][hf]") {
    const auto loaded =
        load("", R"({"bos_token":{"content":"<s>"},"eos_token":"ab","add_bos_token":true,)"
                 R"("chat_template":[{"name":"tool_use","template":"T"},)"
                 R"({"name":"default","template":"D"}]})");
    REQUIRE(loaded.has_value());
    CHECK(loaded->tokenizer->bos() == 2);
    CHECK(loaded->tokenizer->add_bos());
    CHECK(loaded->tokenizer->eos() == 3);
    CHECK(loaded->bos_piece == "<s>");
    CHECK(loaded->eos_piece == "ab");
    CHECK(loaded->chat_template == "D");
    CHECK(load("", R"({"chat_template":"C"})")->chat_template == "C");
    CHECK(load("")->chat_template.empty());
    CHECK_FALSE(load("")->tokenizer->add_bos());
}

TEST_CASE("a user's text never becomes a special token of tokenizer.json",
          "[model][tokenizer][hf]") {
    const auto loaded = load("");
    REQUIRE(loaded.has_value());
    CHECK(test::encode(*loaded->tokenizer, "<s>ab") == std::vector<TokenId>{3});
}

TEST_CASE("swift-transformers' file gives its vocabulary's ids", "[model][tokenizer][hf]") {
    const std::string folder = "2-tokenizers/swift-transformers/";
    if (!test::have_shared(folder + "tokenizer.json")) return;
    const auto loaded = model::load_hf_tokenizer(
        test::read_text(test::shared_data(folder + "tokenizer.json")),
        test::read_text(test::shared_data(folder + "tokenizer_config.json")));
    // Its merges name pieces that its vocabulary lacks, which the tokenizers package refuses, too.
    REQUIRE(loaded.has_error());
    CHECK(loaded.error().kind == ErrorKind::invalid_input);
}

TEST_CASE("every kind of tokenizer.json takes any bytes in linear time", "[model][tokenizer][hf]") {
    const auto file = test::read_json(test::test_data("tokenizers/hugging_face.json"));
    for (const auto& kind : file.at("kinds").as_array()) {
        CAPTURE(std::string(kind.at("name").as_string()));
        const auto loaded =
            model::load_hf_tokenizer(boost::json::serialize(kind.at("tokenizer")), "");
        REQUIRE(loaded.has_value());
        for (const char* unit : {"A", " ", "\n", "7", "\xE6\xBC\xA2", "\xFF", "\xED\xA0\x80"}) {
            std::string text;
            while (text.size() < 100'000)
                text += unit;
            const std::vector<TokenId> ids = test::encode(*loaded->tokenizer, text);
            CHECK(ids.size() <= text.size() + 1);
        }
        CHECK(test::encode(*loaded->tokenizer, "").empty());
    }
}
