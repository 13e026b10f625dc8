// The reading half of wire_completion.hpp.
#include <fmt/format.h>

#include <limits>
#include <utility>

#include "gateway/wire_completion.hpp"
#include "gateway/wire_messages.hpp"
#include "gateway/wire_params.hpp"

namespace troupe::gateway {
namespace {

// To ignore a wish for another form of answer would be a lie.
WireResult<> check_answer_form(const JsonFields& fields) {
    if (const auto format = fields.find("response_format")) {
        std::string_view type;
        if (format->at_key("type").get(type) != simdjson::SUCCESS)
            return invalid_parameter("response_format",
                                     fmt::format("response_format is {}, but must be an object "
                                                 "with a type.",
                                                 excerpt(*format)));
        if (type != "text")
            return unsupported("response_format",
                               fmt::format("response_format.type is \"{}\"; this server writes "
                                           "plain text only.",
                                           type.substr(0, 40)));
    }
    std::optional<std::string> suffix;
    TROUPE_TRY_ASSIGN(suffix, fields.string("suffix"));
    if (suffix && !suffix->empty())
        return unsupported("suffix", "This model cannot fill in before a suffix.");
    return {};
}

WireResult<> read_streaming(const JsonFields& fields, CompletionRequest& request) {
    std::optional<bool> flag;
    TROUPE_TRY_ASSIGN(flag, fields.boolean("stream"));
    request.stream = flag.value_or(false);
    const auto options = fields.find("stream_options");
    if (!options) return {};
    auto option_fields = JsonFields::of(*options, "stream_options");
    if (!option_fields) return option_fields.error();
    TROUPE_TRY_ASSIGN(flag, option_fields->boolean("include_usage"));
    request.include_usage = flag.value_or(false);
    TROUPE_TRY_ASSIGN(flag, option_fields->boolean("continuous_usage_stats"));
    request.continuous_usage = request.include_usage && flag.value_or(false);
    return {};
}

WireResult<> read_common(const JsonFields& fields, const ServedModel& served, Door door,
                         CompletionRequest& request) {
    if (auto known = check_model(fields, served); !known) return known;
    if (auto fine = check_answer_form(fields); !fine) return fine;
    WireParams params;
    TROUPE_TRY_ASSIGN(params, read_params(fields, served, door));
    request.params = std::move(params.params);
    request.seed_given = params.seed_given;
    request.answers = params.answers;
    request.candidates = params.candidates;
    request.drop_old_turns = params.drop_old_turns;
    request.deadline = params.deadline;
    if (auto read = read_streaming(fields, request); !read) return read;
    if (request.stream && request.ranks())
        return unsupported("stream", fmt::format("stream is true, but the best {} of {} are known "
                                                 "only when all are finished; leave out stream or "
                                                 "best_of.",
                                                 request.answers, request.candidates));
    return {};
}

WireResult<std::vector<model::TokenId>> read_token_list(const simdjson::dom::array& list,
                                                        std::int64_t vocabulary_size) {
    std::vector<model::TokenId> tokens;
    for (const JsonElement element : list) {
        std::int64_t id = 0;
        if (element.get(id) != simdjson::SUCCESS || id < 0 || id >= vocabulary_size)
            return invalid_parameter(
                "prompt", fmt::format("prompt holds the token {}, but a token id is an integer "
                                      "between 0 and {}.",
                                      excerpt(element), vocabulary_size - 1));
        tokens.push_back(static_cast<model::TokenId>(id));
    }
    return tokens;
}

WireResult<CompletionPrompt> read_prompt(const JsonElement& element, std::int64_t vocabulary_size) {
    std::string_view text;
    if (element.get(text) == simdjson::SUCCESS) return CompletionPrompt(std::string(text));
    simdjson::dom::array list;
    if (element.get(list) != simdjson::SUCCESS)
        return invalid_parameter(
            "prompt", fmt::format("prompt has {}, but must be a string, a list of strings, a list "
                                  "of token ids or a list of such lists.",
                                  excerpt(element)));
    auto tokens = read_token_list(list, vocabulary_size);
    if (!tokens) return tokens.error();
    return CompletionPrompt(std::move(*tokens));
}

// A string, a list of strings, a list of token ids, or a list of lists of token ids.
WireResult<std::vector<CompletionPrompt>> read_prompts(const JsonFields& fields,
                                                       const ServedModel& served) {
    const std::int64_t vocabulary_size = served.tokenizer.vocabulary_size();
    std::vector<CompletionPrompt> prompts;
    const auto value = fields.find("prompt");
    if (!value) return invalid_parameter("prompt", "prompt is absent.");
    simdjson::dom::array list;
    const bool is_list = value->get(list) == simdjson::SUCCESS;
    const bool is_tokens = is_list && list.size() > 0 && list.at(0).is_number();
    if (!is_list || is_tokens) {
        auto prompt = read_prompt(*value, vocabulary_size);
        if (!prompt) return prompt.error();
        prompts.push_back(std::move(*prompt));
        return prompts;
    }
    if (list.size() == 0 || list.size() > served.limits.prompts_max)
        return invalid_parameter("prompt", fmt::format("prompt holds {} prompts, but must hold "
                                                       "between 1 and {}.",
                                                       list.size(), served.limits.prompts_max));
    for (const JsonElement element : list) {
        auto prompt = read_prompt(element, vocabulary_size);
        if (!prompt) return prompt.error();
        prompts.push_back(std::move(*prompt));
    }
    return prompts;
}

WireResult<CompletionRequest> read_body(
    std::string_view body, const ServedModel& served,
    const std::function<WireResult<>(const JsonFields&, CompletionRequest&)>& read_fields) {
    CompletionRequest request;
    const auto read =
        with_json(body, served.limits.depth_max, [&](const JsonElement& root) -> WireResult<> {
            auto fields = JsonFields::of(root, "body");
            if (!fields) return fields.error();
            return read_fields(*fields, request);
        });
    if (!read) return read.error();
    return request;
}

}  // namespace

WireResult<CompletionRequest> read_chat_body(std::string_view body, const ServedModel& served) {
    return read_body(body, served,
                     [&](const JsonFields& fields, CompletionRequest& request) -> WireResult<> {
                         request.chat = true;
                         const auto messages = fields.find("messages");
                         if (!messages) return invalid_parameter("messages", "messages is absent.");
                         TROUPE_TRY_ASSIGN(request.messages, read_chat_messages(*messages));
                         TROUPE_TRY_ASSIGN(request.tools_json, read_tools(fields));
                         return read_common(fields, served, Door::chat_completions, request);
                     });
}

WireResult<CompletionRequest> read_completion_body(std::string_view body,
                                                   const ServedModel& served) {
    return read_body(
        body, served, [&](const JsonFields& fields, CompletionRequest& request) -> WireResult<> {
            request.chat = false;
            TROUPE_TRY_ASSIGN(request.prompts, read_prompts(fields, served));
            if (auto read = read_common(fields, served, Door::completions, request); !read)
                return read;
            std::optional<bool> echo;
            TROUPE_TRY_ASSIGN(echo, fields.boolean("echo"));
            request.echo = echo.value_or(false);
            const std::size_t calls = request.prompts.size() * request.candidates;
            if (calls > served.limits.calls_max)
                return invalid_parameter(
                    request.ranks() ? "best_of" : "n",
                    fmt::format("{} times the number of prompts is {}, but must be at most {}.",
                                request.ranks() ? "best_of" : "n", calls, served.limits.calls_max));
            return {};
        });
}

}  // namespace troupe::gateway
