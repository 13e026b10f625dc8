// Reads conversations from a request's JSON: chat messages and Responses input items, in every form
// the public schemas allow for text. What this server cannot read (images, audio, files) is refused
// by name, never dropped. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "gateway/json_document.hpp"
#include "model/chat_message.hpp"

namespace troupe::gateway {

// `messages` of /v1/chat/completions. Errors name the place, as in messages[2].content.
[[nodiscard]] WireResult<std::vector<model::ChatMessage>> read_chat_messages(
    const JsonElement& messages);

// `tools` of the same body, for the chat template; empty where there are none, or tool_choice is
// "none". Errors: tools that are no list of objects with a function and its name.
[[nodiscard]] WireResult<std::string> read_tools(const JsonFields& body);

// `input` of a Responses create: a string (one user message) or a list of items. Reasoning items
// that a client echoes back are skipped.
[[nodiscard]] WireResult<std::vector<model::ChatMessage>> read_response_input(
    const JsonElement& input);

}  // namespace troupe::gateway
