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
// `tools_json`, here and below: the tools that the model may call, a JSON array; empty: none. 400
// where the template has no place for them.
[[nodiscard]] WireResult<std::vector<model::TokenId>> template_tokens(
    const std::vector<model::ChatMessage>& messages, const ServedModel& served,
    const std::string& tools_json = {});
[[nodiscard]] WireResult<std::string> template_text(const std::vector<model::ChatMessage>& messages,
                                                    const ServedModel& served,
                                                    const std::string& tools_json = {});

struct FittedPrompt {
    std::vector<model::TokenId> tokens;
    std::uint32_t dropped_messages = 0;
    bool system_in_user = false;  // the template has no system role: users told its text
};

// Prompts to submit. Errors: 400 where the template refuses the conversation, where nothing is left
// to begin with, and context_length_exceeded, with both numbers, where no room is left for an
// answer.
//
// fit.drop_old_turns: the oldest turns are left out, as few as will do, until there is room for
// fit.answer_tokens, but for no more than a quarter of the context. A turn is a user message and
// what follows it. System and developer messages and the last turn stay; where the last turn alone
// leaves less room, that is what the answer gets.
[[nodiscard]] WireResult<FittedPrompt> make_prompt(const std::vector<model::ChatMessage>& messages,
                                                   const actors::PromptFit& fit,
                                                   const ServedModel& served,
                                                   const std::string& tools_json = {});
[[nodiscard]] WireResult<FittedPrompt> make_prompt(const CompletionPrompt& prompt,
                                                   const ServedModel& served);

}  // namespace troupe::gateway
