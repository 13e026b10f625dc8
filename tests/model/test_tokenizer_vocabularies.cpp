#include <catch2/catch.hpp>
#include <map>
#include <sstream>

#include "model/pretokenizer_expressions.hpp"
#include "tests/model/test_tokenizer_support.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/stories260k.hpp"

using namespace troupe;
using model::TokenId;

namespace {

const std::string folder = "2-tokenizers/llama.cpp/";

std::vector<std::string> read_inputs(const std::filesystem::path& path) {
    const std::string text = test::read_text(path);
    const std::string separator = "\n__ggml_vocab_test__\n";
    std::vector<std::string> inputs;
    std::size_t at = 0;
    for (std::size_t end = 0; (end = text.find(separator, at)) != std::string::npos;) {
        inputs.push_back(text.substr(at, end - at));
        at = end + separator.size();
    }
    return inputs;
}

std::vector<std::vector<TokenId>> read_outputs(const std::filesystem::path& path) {
    std::istringstream lines(test::read_text(path));
    std::vector<std::vector<TokenId>> outputs;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::vector<TokenId> ids;
        for (TokenId id = 0; words >> id;)
            ids.push_back(id);
        outputs.push_back(std::move(ids));
    }
    return outputs;
}

void check_cases_of(const std::string& name, std::string_view vocabulary, bool bos_first) {
    if (!test::have_shared(folder + std::string(vocabulary))) return;
    const auto tokenizer =
        test::open_tokenizer(test::shared_data(folder + std::string(vocabulary)));
    const auto file =
        test::read_json(test::shared_data("2-tokenizers/transformers.js/tokenization-cases.json"));
    for (const auto& [case_name, value] : file.at("tokenizers").at(name).at("cases").as_object()) {
        const auto text = boost::json::value_to<std::string>(value.at("text"));
        CAPTURE(std::string(case_name), text);
        std::vector<TokenId> ids;
        if (bos_first && tokenizer->add_bos()) ids.push_back(*tokenizer->bos());
        tokenizer->encode_with_control(text, ids);
        CHECK(ids == test::ids_of(value.at("ids")));
    }
}

}  // namespace

TEST_CASE("vocabularies give the ids of their reference files", "[model][tokenizer]") {
    const auto name = GENERATE(as<std::string>{}, "gpt-2", "starcoder", "refact", "falcon", "mpt",
                               "deepseek-llm", "deepseek-coder", "llama-spm", "phi-3", "bert-bge");
    const std::string base = folder + "ggml-vocab-" + name + ".gguf";
    if (!test::have_shared(base)) return;
    CAPTURE(name);
    const auto tokenizer = test::open_tokenizer(test::shared_data(base));
    const auto inputs = read_inputs(test::shared_data(base + ".inp"));
    const auto outputs = read_outputs(test::shared_data(base + ".out"));
    REQUIRE(inputs.size() == 46);
    REQUIRE(outputs.size() == inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        CAPTURE(i, inputs[i]);
        CHECK(test::encode(*tokenizer, inputs[i]) == outputs[i]);
    }
}

TEST_CASE("a vocabulary without a named pre-tokenizer splits as GPT-2 does", "[model][tokenizer]") {
    const std::string vocabulary = folder + "ggml-vocab-gpt-neox.gguf";
    if (!test::have_shared(vocabulary)) return;
    const auto tokenizer = test::open_tokenizer(test::shared_data(vocabulary));
    std::istringstream lines(
        test::read_text(test::shared_data("2-tokenizers/ggml-prompts/gpt-neox.txt")));
    int checked = 0;
    for (std::string line; std::getline(lines, line); ++checked) {
        const std::size_t arrow = line.rfind(" => ");
        REQUIRE(arrow != std::string::npos);
        std::istringstream numbers(line.substr(arrow + 4));
        std::vector<TokenId> expected;
        for (std::string number; std::getline(numbers, number, ',');) {
            expected.push_back(std::stoi(number));
        }
        CAPTURE(line);
        CHECK(test::encode(*tokenizer, line.substr(0, arrow)) == expected);
    }
    CHECK(checked > 50);
}

TEST_CASE("GPT-2's text gives the ids of another implementation", "[model][tokenizer]") {
    check_cases_of("openai-community/gpt2", "ggml-vocab-gpt-2.gguf", false);
}

TEST_CASE("Falcon's text gives the ids of another implementation", "[model][tokenizer]") {
    check_cases_of("tiiuae/falcon-7b", "ggml-vocab-falcon.gguf", false);
}

TEST_CASE("DeepSeek coder's text gives the ids of another implementation", "[model][tokenizer]") {
    check_cases_of("Xenova/deepseek-coder-1.3b-instruct", "ggml-vocab-deepseek-coder.gguf", true);
}

TEST_CASE("Llama 2's texts give the ids of llama2.c", "[model][tokenizer]") {
    const std::string cases = "2-tokenizers/llama2-spm-cases.json";
    const std::string vocabulary = folder + "ggml-vocab-llama-spm.gguf";
    if (!test::have_shared(cases) || !test::have_shared(vocabulary)) return;
    const auto tokenizer = test::open_tokenizer(test::shared_data(vocabulary));
    REQUIRE(tokenizer->add_bos());
    const auto file = test::read_json(test::shared_data(cases));
    for (const auto& [name, group] : file.as_object()) {
        if (!name.starts_with("llama2-32000")) continue;
        for (const auto& one : group.at("cases").as_array()) {
            std::vector<TokenId> ids;
            if (name.ends_with("BOS first")) ids.push_back(*tokenizer->bos());
            tokenizer->encode(boost::json::value_to<std::string>(one.at("text")), ids);
            CHECK(ids == test::ids_of(one.at("ids")));
        }
    }
}

TEST_CASE("the tiny model's prompts give the ids of llama2.c", "[model][tokenizer]") {
    if (!test::have_shared(test::kStories260kReference)) return;
    const std::vector<std::byte> bytes = test::stories260k_gguf();
    const Result<model::GgufFile> file = model::GgufFile::parse(bytes);
    REQUIRE(file.has_value());
    const auto tokenizer = model::load_tokenizer(*file);
    REQUIRE(tokenizer.has_value());
    const auto reference = test::read_json(test::shared_data(test::kStories260kReference));
    for (const auto& one : reference.at("cases").as_array()) {
        std::vector<TokenId> ids = {1};
        (*tokenizer)->encode(boost::json::value_to<std::string>(one.at("prompt")), ids);
        CHECK(ids == test::ids_of(one.at("prompt_ids")));
    }
}

TEST_CASE("every pre-tokenizer leaves the text whole", "[model][tokenizer]") {
    const std::string text =
        "It's 12345 na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD,  WORDS\n\n\tand (more) it's!  ";
    for (const std::string_view name : model::pretokenizer_names()) {
        CAPTURE(std::string(name));
        const auto made = model::PreTokenizer::make(name);
        REQUIRE(made.has_value());
        std::string whole;
        std::size_t count = 0;
        made->split(text, [&](std::string_view stretch) {
            whole += stretch;
            ++count;
        });
        CHECK(whole == text);
        CHECK(count > 1);
    }
    const auto unknown = model::PreTokenizer::make("nonsense");
    REQUIRE(unknown.has_error());
    CHECK(unknown.error().kind == ErrorKind::unsupported);
    CHECK(unknown.error().message.find("qwen2") != std::string::npos);
}

// No stretch is less than a token, and where there are as many of both, a stretch is the same token
// wherever it stands: that is what reference ids say of a pre-tokenizer without its vocabulary.
// Phi-2's adds tokens for runs of blanks, which come before its pre-tokenizer.
TEST_CASE("stretches agree with the reference ids of vocabularies that are not at hand",
          "[model][tokenizer]") {
    const auto [from, name] =
        GENERATE(table<std::string, std::string>({{"llama.cpp", "command-r"},
                                                  {"llama.cpp", "llama-bpe"},
                                                  {"llama.cpp", "qwen2"},
                                                  {"llama.cpp", "qwen35"},
                                                  {"llama.cpp-older", "gpt-4o"},
                                                  {"llama.cpp-older", "llama4"},
                                                  {"llama.cpp-older", "chameleon"},
                                                  {"llama.cpp-older", "deepseek-r1-qwen"},
                                                  {"llama.cpp-older", "pixtral"},
                                                  {"llama.cpp-older", "roberta-bpe"}}));
    const std::string base = "2-tokenizers/" + from + "/ggml-vocab-" + name + ".gguf";
    if (!test::have_shared(base + ".inp")) return;
    CAPTURE(name);
    const auto inputs = read_inputs(test::shared_data(base + ".inp"));
    const auto outputs = read_outputs(test::shared_data(base + ".out"));
    REQUIRE(inputs.size() <= outputs.size());
    const auto made = model::PreTokenizer::make(name);
    REQUIRE(made.has_value());
    std::map<std::string, TokenId> tokens;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        CAPTURE(i, inputs[i]);
        std::vector<std::string> stretches;
        made->split(inputs[i], [&](std::string_view one) { stretches.emplace_back(one); });
        CHECK(stretches.size() <= outputs[i].size());
        if (stretches.size() != outputs[i].size()) continue;
        for (std::size_t k = 0; k < stretches.size(); ++k) {
            CHECK(tokens.try_emplace(stretches[k], outputs[i][k]).first->second == outputs[i][k]);
        }
    }
    CHECK(tokens.size() > 10);
}
