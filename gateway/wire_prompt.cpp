#include "gateway/wire_prompt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

namespace troupe::gateway {
namespace {

WireResult<FittedPrompt> checked(FittedPrompt prompt, const ServedModel& served) {
    if (prompt.tokens.empty())
        return invalid_parameter("prompt", "The prompt is empty; there is nothing to go on from.");
    if (prompt.tokens.size() >= served.context_length)
        return actors::RequestError{
            .status = 400,
            .code = "context_length_exceeded",
            // Client libraries know this error by the first words.
            .message =
                fmt::format("This model's maximum context length is {} tokens, prompt and "
                            "answer together, but the prompt has {}{}.",
                            served.context_length, prompt.tokens.size(),
                            prompt.dropped_messages > 0 ? " with all older turns left out" : ""),
            .param = {}};
    return prompt;
}

WireResult<model::RenderedChat> render(const std::vector<model::ChatMessage>& messages,
                                       const std::string& tools_json, const ServedModel& served) {
    model::ChatRenderOptions options;
    options.tools_json = tools_json;
    const std::time_t now = std::time(nullptr);  // for templates that write the date
    ::gmtime_r(&now, &options.now);
    auto rendered = served.chat_template.render(messages, options);
    if (rendered) return std::move(*rendered);
    const Error& error = rendered.error();
    if (error.kind != ErrorKind::unsupported) return invalid_parameter("messages", error.message);
    return unsupported(tools_json.empty() ? "messages" : "tools", error.message);
}

bool begins_turn(const model::ChatMessage& message) {
    return message.role == "user";
}

std::size_t count_turns(const std::vector<model::ChatMessage>& messages) {
    return static_cast<std::size_t>(std::count_if(messages.begin(), messages.end(), begins_turn));
}

// What stands before the first user message belongs to the first turn.
WireResult<FittedPrompt> without_turns(const std::vector<model::ChatMessage>& messages,
                                       std::size_t dropped_turns, const std::string& tools_json,
                                       const ServedModel& served) {
    FittedPrompt fitted;
    std::vector<model::ChatMessage> kept;
    std::size_t turn = 0;
    for (const model::ChatMessage& message : messages) {
        turn += begins_turn(message) ? 1 : 0;
        const bool stays = message.role == "system" || message.role == "developer";
        if (std::max<std::size_t>(turn, 1) > dropped_turns || stays) kept.push_back(message);
    }
    fitted.dropped_messages = static_cast<std::uint32_t>(messages.size() - kept.size());
    const auto rendered = render(kept, tools_json, served);
    if (!rendered) return rendered.error();
    model::encode_chat(served.tokenizer, *rendered, fitted.tokens);
    fitted.system_in_user = rendered->system_in_user;
    return fitted;
}

std::size_t prompt_tokens_max(const actors::PromptFit& fit, const ServedModel& served) {
    const std::uint32_t quarter = std::max(served.context_length / 4, 1U);
    const std::uint32_t answer =
        fit.answer_tokens < 0 ? quarter : static_cast<std::uint32_t>(fit.answer_tokens);
    return served.context_length - std::clamp(answer, 1U, quarter);
}

}  // namespace

std::size_t prompt_bytes(const std::vector<model::ChatMessage>& messages) {
    std::size_t bytes = 0;
    for (const model::ChatMessage& message : messages)
        bytes += message.content.size();
    return bytes;
}

std::size_t prompt_bytes(const CompletionPrompt& prompt) {
    const auto* text = std::get_if<std::string>(&prompt);
    return text == nullptr ? 0 : text->size();
}

WireResult<std::vector<model::TokenId>> template_tokens(
    const std::vector<model::ChatMessage>& messages, const ServedModel& served,
    const std::string& tools_json) {
    const auto rendered = render(messages, tools_json, served);
    if (!rendered) return rendered.error();
    std::vector<model::TokenId> tokens;
    model::encode_chat(served.tokenizer, *rendered, tokens);
    return tokens;
}

WireResult<std::string> template_text(const std::vector<model::ChatMessage>& messages,
                                      const ServedModel& served, const std::string& tools_json) {
    auto rendered = render(messages, tools_json, served);
    if (!rendered) return rendered.error();
    return std::move(rendered->text);
}

WireResult<FittedPrompt> make_prompt(const std::vector<model::ChatMessage>& messages,
                                     const actors::PromptFit& fit, const ServedModel& served,
                                     const std::string& tools_json) {
    auto whole = without_turns(messages, 0, tools_json, served);
    if (!whole) return whole.error();
    const std::size_t most = prompt_tokens_max(fit, served);
    if (whole->tokens.size() <= most || !fit.drop_old_turns)
        return checked(std::move(*whole), served);
    // The fewest turns that will do: more turns less are never more tokens.
    std::size_t too_few = 0;
    std::size_t enough = std::max<std::size_t>(count_turns(messages), 1) - 1;
    auto fitted =
        enough > 0 ? without_turns(messages, enough, tools_json, served) : std::move(whole);
    while (fitted && too_few + 1 < enough) {
        const std::size_t middle = (too_few + enough) / 2;
        auto tried = without_turns(messages, middle, tools_json, served);
        if (!tried) return tried.error();
        if (tried->tokens.size() > most) {
            too_few = middle;
        } else {
            enough = middle;
            fitted = std::move(tried);
        }
    }
    if (!fitted) return fitted.error();
    return checked(std::move(*fitted), served);
}

WireResult<FittedPrompt> make_prompt(const CompletionPrompt& prompt, const ServedModel& served) {
    if (const auto* ids = std::get_if<std::vector<model::TokenId>>(&prompt))
        return checked({.tokens = *ids}, served);
    std::vector<model::TokenId> tokens;
    if (served.tokenizer.add_bos() && served.tokenizer.bos())
        tokens.push_back(*served.tokenizer.bos());
    served.tokenizer.encode(std::get<std::string>(prompt), tokens);
    return checked({.tokens = std::move(tokens)}, served);
}

}  // namespace troupe::gateway
