// From a conversation or a text to the tokens of a prompt, and the one check that a prompt fits.
// Takes time in proportion to the text: long ones belong on a helper thread. Any thread.
#pragma once

#include <vector>

#include "gateway/json_document.hpp"
#include "gateway/served_model.hpp"
#include "gateway/wire_completion.hpp"
#include "model/chat_message.hpp"

namespace troupe::gateway {

// Bytes of text that the prompt is made from.
[[nodiscard]] std::size_t prompt_bytes(const std::vector<model::ChatMessage>& messages);
[[nodiscard]] std::size_t prompt_bytes(const CompletionPrompt& prompt);

// The conversation as the template writes it, answer begun; 400 where the template refuses it.
[[nodiscard]] WireResult<std::vector<model::TokenId>> template_tokens(
    const std::vector<model::ChatMessage>& messages, const ServedModel& served);
[[nodiscard]] WireResult<std::string> template_text(const std::vector<model::ChatMessage>& messages,
                                                    const ServedModel& served);

// Prompts to submit. Errors: 400 where the template refuses the conversation, where nothing is left
// to begin with, and context_length_exceeded, with both numbers, where no room is left for an
// answer.
[[nodiscard]] WireResult<std::vector<model::TokenId>> make_prompt(
    const std::vector<model::ChatMessage>& messages, const ServedModel& served);
[[nodiscard]] WireResult<std::vector<model::TokenId>> make_prompt(const CompletionPrompt& prompt,
                                                                  const ServedModel& served);

}  // namespace troupe::gateway
