// The default model's chat template against reference texts and ids.
#include <catch2/catch.hpp>

#include "model/chat_template.hpp"
#include "model/jinja_json.hpp"
#include "tests/model/test_tokenizer_support.hpp"
#include "tests/support/paths.hpp"

using namespace troupe;
using model::ChatMessage;
using model::ChatTemplate;
using model::TokenId;

namespace {

constexpr const char* cases_file = "7-smollm2/chat-template-cases.json";

std::vector<ChatMessage> messages_of(const boost::json::value& array) {
    std::vector<ChatMessage> messages;
    for (const auto& one : array.as_array()) {
        messages.push_back(
            {std::string(one.at("role").as_string()), std::string(one.at("content").as_string())});
    }
    return messages;
}

}  // namespace

TEST_CASE("conversations become the reference text and ids", "[model][template]") {
    if (!test::have_shared(cases_file)) return;
    const std::filesystem::path path = test::default_model();
    if (path.empty()) return;
    const auto tokenizer = test::open_tokenizer(path);
    const auto file = test::read_json(test::shared_data(cases_file));
    const Result<ChatTemplate> chat_template =
        ChatTemplate::compile(file.at("template").as_string(), "<|im_start|>", "<|im_end|>");
    REQUIRE(chat_template.has_value());
    const auto& cases = file.at("cases").as_array();
    REQUIRE(cases.size() == 33);
    for (const auto& one : cases) {
        CAPTURE(std::string(one.at("name").as_string()));
        model::ChatRenderOptions options;
        options.add_generation_prompt = one.at("add_generation_prompt").as_bool();
        const auto messages = messages_of(one.at("messages"));
        const Result<model::RenderedChat> chat = chat_template->render(messages, options);
        REQUIRE(chat.has_value());
        CHECK(chat->text == one.at("text").as_string());
        std::vector<TokenId> ids;
        model::encode_chat(*tokenizer, *chat, ids);
        CHECK(ids == test::ids_of(one.at("ids")));
    }
}

TEST_CASE("contents that are no strings are errors", "[model][template]") {
    if (!test::have_shared(cases_file)) return;
    const auto file = test::read_json(test::shared_data(cases_file));
    const auto compiled = model::jinja::Template::compile(file.at("template").as_string());
    REQUIRE(compiled.has_value());
    const auto& cases = file.at("not_strings").as_array();
    REQUIRE(cases.size() == 5);
    for (const auto& one : cases) {
        CAPTURE(std::string(one.at("name").as_string()));
        model::jinja::Heap heap(1 << 20);
        const auto context = model::jinja::from_json(heap, boost::json::serialize(one),
                                                     model::jinja::Origin::from_user);
        REQUIRE(context.has_value());
        CHECK(compiled->render(heap, *model::jinja::as_dict(*context)).has_error());
    }
}
