#include "gateway/wire_prompt.hpp"

#include <fmt/format.h>

#include <ctime>
#include <utility>

namespace troupe::gateway {
namespace {

WireResult<std::vector<model::TokenId>> checked(std::vector<model::TokenId> tokens,
                                                const ServedModel& served) {
    if (tokens.empty())
        return invalid_parameter("prompt", "The prompt is empty; there is nothing to go on from.");
    if (tokens.size() >= served.context_length)
        return actors::RequestError{
            .status = 400,
            .code = "context_length_exceeded",
            .message = fmt::format("The prompt has {} tokens, but this model's context holds {}, "
                                   "prompt and answer together.",
                                   tokens.size(), served.context_length),
            .param = {}};
    return tokens;
}

WireResult<model::RenderedChat> render(const std::vector<model::ChatMessage>& messages,
                                       const ServedModel& served) {
    model::ChatRenderOptions options;
    const std::time_t now = std::time(nullptr);  // for templates that write the date
    ::gmtime_r(&now, &options.now);
    auto rendered = served.chat_template.render(messages, options);
    if (!rendered) return invalid_parameter("messages", rendered.error().message);
    return std::move(*rendered);
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
    const std::vector<model::ChatMessage>& messages, const ServedModel& served) {
    const auto rendered = render(messages, served);
    if (!rendered) return rendered.error();
    std::vector<model::TokenId> tokens;
    model::encode_chat(served.tokenizer, *rendered, tokens);
    return tokens;
}

WireResult<std::string> template_text(const std::vector<model::ChatMessage>& messages,
                                      const ServedModel& served) {
    auto rendered = render(messages, served);
    if (!rendered) return rendered.error();
    return std::move(rendered->text);
}

WireResult<std::vector<model::TokenId>> make_prompt(const std::vector<model::ChatMessage>& messages,
                                                    const ServedModel& served) {
    auto tokens = template_tokens(messages, served);
    if (!tokens) return tokens.error();
    return checked(std::move(*tokens), served);
}

WireResult<std::vector<model::TokenId>> make_prompt(const CompletionPrompt& prompt,
                                                    const ServedModel& served) {
    if (const auto* ids = std::get_if<std::vector<model::TokenId>>(&prompt))
        return checked(*ids, served);
    std::vector<model::TokenId> tokens;
    if (served.tokenizer.add_bos() && served.tokenizer.bos())
        tokens.push_back(*served.tokenizer.bos());
    served.tokenizer.encode(std::get<std::string>(prompt), tokens);
    return checked(std::move(tokens), served);
}

}  // namespace troupe::gateway
