#include "model/chat_template_support.hpp"

#include <array>
#include <string_view>

namespace troupe::model {

namespace {

// Words that no template has of itself.
const ChatMessage kSystem{.role = "system", .content = "probe-system"};
const ChatMessage kUser{.role = "user", .content = "probe-user"};
// Some templates demand ids of nine letters, others take the function's name from them.
constexpr std::array kIds = {"probe1234", "functions.probe_call:0"};

constexpr const char* kTools = R"([{"type": "function", "function": {"name": "probe_tool",
"description": "Probes.", "parameters": {"type": "object", "properties": {"probed":
{"type": "string", "description": "What to probe."}}, "required": ["probed"]}}}])";

using Render = std::function<Result<std::string>(const ChatTrial&)>;

bool holds(const Result<std::string>& text, std::string_view word) {
    return text && text->find(word) != std::string::npos;
}

Result<std::string> render_calls(const Render& render, const std::string& id,
                                 ChatTemplateSupport as, bool arguments_as_objects) {
    as.arguments_as_objects = arguments_as_objects;
    const ChatMessage call{
        .role = "assistant",
        .content = "",
        .tool_calls_json = R"([{"type": "function", "id": ")" + id +
                           R"(", "function": {"name": "probe_call", "arguments":)"
                           R"("{\"probe_argument\": \"probe-value\"}"}}])"};
    const ChatMessage result{.role = "tool",
                             .content = R"({"result": "probe-result"})",
                             .name = "probe_call",
                             .tool_call_id = id};
    const std::array messages = {kUser, call, result};
    return render({messages, as.tools ? kTools : "", as});
}

void find_tool_calls(const Render& render, ChatTemplateSupport& support) {
    support.tool_calls = support.tool_results = false;
    for (const char* id : kIds) {
        const auto objects = render_calls(render, id, support, true);
        // What Python prints for an object is not what a model was trained on.
        const bool as_objects =
            holds(objects, "probe_argument") && !holds(objects, "'probe_argument'");
        const auto told = as_objects ? objects : render_calls(render, id, support, false);
        support.tool_calls = holds(told, "probe_argument");
        support.tool_results = holds(told, "probe-result");
        support.arguments_as_objects = as_objects;
        if (support.tool_calls && support.tool_results) return;
    }
}

}  // namespace

ChatTemplateSupport find_support(const Render& render) {
    ChatTemplateSupport support;
    const std::array user = {kUser};
    const std::array system_and_user = {kSystem, kUser};
    if (!holds(render({user, {}, support}), kUser.content)) {
        support.content_as_parts = true;
        if (!holds(render({user, {}, support}), kUser.content)) return {};
    }
    support.system_role = holds(render({system_and_user, {}, support}), kSystem.content);
    support.tools =
        holds(render({user, kTools, support}), "probe_tool") ||
        (support.system_role && holds(render({system_and_user, kTools, support}), "probe_tool"));
    find_tool_calls(render, support);
    return support;
}

std::vector<ChatMessage> with_system_in_user(std::span<const ChatMessage> messages) {
    std::vector<ChatMessage> made;
    std::string waiting;
    for (const ChatMessage& message : messages) {
        if (message.role == "system" || message.role == "developer") {
            if (!waiting.empty()) waiting += "\n";
            waiting += message.content;
            continue;
        }
        made.push_back(message);
        if (message.role != "user" || waiting.empty()) continue;
        made.back().content = waiting + "\n" + message.content;
        waiting.clear();
    }
    if (!waiting.empty()) made.push_back({.role = "user", .content = waiting});
    return made;
}

}  // namespace troupe::model
