// One message of a conversation, as it goes into a chat template.
#pragma once

#include <string>

namespace troupe::model {

struct ChatMessage {
    std::string role;  // system, developer, user, assistant or tool
    std::string content;
    std::string name = {};             // of the author or of the tool; empty: none
    std::string tool_call_id = {};     // which call a tool message answers; empty: none
    std::string tool_calls_json = {};  // a JSON array, of an assistant message; empty: none
    std::string reasoning = {};        // "reasoning_content" of an assistant message; empty: none

    friend bool operator==(const ChatMessage&, const ChatMessage&) = default;
};

}  // namespace troupe::model
