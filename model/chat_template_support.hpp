// What a chat template can say, found out by rendering small conversations with it: files do not
// tell, and a template that leaves out what it does not know gives no error.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/chat_message.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

struct ChatTemplateSupport {
    bool system_role = true;   // false: a system message is refused or left out
    bool tools = true;         // a list of tools is written
    bool tool_calls = true;    // the calls of an assistant's message are written
    bool tool_results = true;  // messages of tools are written
    // The arguments of a call must be an object, not its JSON text, to be written as JSON.
    bool arguments_as_objects = false;
    // A message's content must be a list of parts ({"type": "text", "text": ...}) to be written.
    bool content_as_parts = false;

    friend bool operator==(const ChatTemplateSupport&, const ChatTemplateSupport&) = default;
};

// One trial conversation, told in the forms that `as` says.
struct ChatTrial {
    std::span<const ChatMessage> messages;
    std::string tools_json;
    ChatTemplateSupport as;
};

// `render` gives the trial's text, or an error where the template refuses it. A template that
// renders nothing at all counts as one that knows everything: it will give its own errors.
[[nodiscard]] ChatTemplateSupport find_support(
    const std::function<Result<std::string>(const ChatTrial&)>& render);

// System messages told by users: each one's text stands, with a newline, before that of the next
// user message; one that no user message follows becomes a user message. As llama.cpp does.
[[nodiscard]] std::vector<ChatMessage> with_system_in_user(std::span<const ChatMessage> messages);

}  // namespace troupe::model
