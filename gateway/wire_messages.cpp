#include "gateway/wire_messages.hpp"

#include <fmt/format.h>

#include <utility>

namespace troupe::gateway {
namespace {

// One part of a content list, appended to `text`.
WireResult<> append_part(const JsonElement& element, const std::string& where, std::string& text) {
    std::string_view plain;
    if (element.get(plain) == simdjson::SUCCESS) {
        text += plain;
        return {};
    }
    simdjson::dom::object object;
    if (element.get(object) != simdjson::SUCCESS)
        return invalid_parameter(
            where, fmt::format("{} is {}, but must be a content part.", where, excerpt(element)));
    const JsonFields part(object, where + ".");
    std::optional<std::string> type;
    TROUPE_TRY_ASSIGN(type, part.string("type"));
    const std::string kind = type.value_or("text");
    const bool is_text = kind == "text" || kind == "input_text" || kind == "output_text";
    if (!is_text && kind != "refusal")
        return unsupported(where, fmt::format("{} has the type \"{}\"; this model reads text only.",
                                              where, kind.substr(0, 40)));
    std::optional<std::string> part_text;
    TROUPE_TRY_ASSIGN(part_text, part.string(is_text ? "text" : "refusal"));
    if (!part_text) return invalid_parameter(where, fmt::format("{} has no text.", where));
    text += *part_text;
    return {};
}

WireResult<std::string> read_content(const JsonFields& message, const std::string& where,
                                     bool may_be_absent) {
    const auto content = message.find("content");
    if (!content) {
        if (may_be_absent) return std::string();
        return invalid_parameter(where + ".content", fmt::format("{} has no content.", where));
    }
    std::string_view plain;
    if (content->get(plain) == simdjson::SUCCESS) return std::string(plain);
    simdjson::dom::array parts;
    if (content->get(parts) != simdjson::SUCCESS)
        return invalid_parameter(
            where + ".content",
            fmt::format("{}.content is {}, but must be a string or a list of parts.", where,
                        excerpt(*content)));
    std::string text;
    std::size_t index = 0;
    for (const JsonElement part : parts) {
        const std::string name = fmt::format("{}.content[{}]", where, index++);
        if (auto read = append_part(part, name, text); !read) return read.error();
    }
    return text;
}

WireResult<std::string> read_role(const JsonFields& message, const std::string& where) {
    std::optional<std::string> role;
    TROUPE_TRY_ASSIGN(role, message.string("role"));
    if (role == "developer") return std::string("system");
    if (role == "function") return std::string("tool");
    if (role == "system" || role == "user" || role == "assistant" || role == "tool") return *role;
    return invalid_parameter(
        where + ".role",
        fmt::format("{}.role is {}, but must be \"system\", \"developer\", \"user\", "
                    "\"assistant\" or \"tool\".",
                    where, role ? fmt::format("\"{}\"", role->substr(0, 40)) : "absent"));
}

WireResult<model::ChatMessage> read_message(const JsonElement& element, const std::string& where) {
    simdjson::dom::object object;
    if (element.get(object) != simdjson::SUCCESS)
        return invalid_parameter(
            where, fmt::format("{} is {}, but must be an object.", where, excerpt(element)));
    const JsonFields fields(object, where + ".");
    model::ChatMessage message;
    TROUPE_TRY_ASSIGN(message.role, read_role(fields, where));
    // An assistant's message that only called tools has no content.
    TROUPE_TRY_ASSIGN(message.content, read_content(fields, where, message.role == "assistant"));
    std::optional<std::string> text;
    TROUPE_TRY_ASSIGN(text, fields.string("name"));
    message.name = text.value_or("");
    TROUPE_TRY_ASSIGN(text, fields.string("tool_call_id"));
    message.tool_call_id = text.value_or("");
    TROUPE_TRY_ASSIGN(text, fields.string("reasoning_content"));
    message.reasoning = text.value_or("");
    if (const auto calls = fields.find("tool_calls"))
        message.tool_calls_json = simdjson::minify(*calls);
    return message;
}

WireResult<> add_item(const JsonElement& element, const std::string& where,
                      std::vector<model::ChatMessage>& messages) {
    simdjson::dom::object object;
    if (element.get(object) == simdjson::SUCCESS) {
        const JsonFields fields(object, where + ".");
        std::optional<std::string> type;
        TROUPE_TRY_ASSIGN(type, fields.string("type"));
        if (type == "reasoning") return {};
        if (type && *type != "message")
            return unsupported(where + ".type",
                               fmt::format("{} has the type \"{}\"; this server reads items of "
                                           "the type \"message\".",
                                           where, type->substr(0, 40)));
    }
    auto message = read_message(element, where);
    if (!message) return message.error();
    messages.push_back(std::move(*message));
    return {};
}

}  // namespace

WireResult<std::vector<model::ChatMessage>> read_chat_messages(const JsonElement& messages) {
    simdjson::dom::array list;
    if (messages.get(list) != simdjson::SUCCESS || list.size() == 0)
        return invalid_parameter("messages",
                                 fmt::format("messages is {}, but must be a list of at least one "
                                             "message.",
                                             excerpt(messages)));
    std::vector<model::ChatMessage> read;
    for (const JsonElement element : list) {
        auto message = read_message(element, fmt::format("messages[{}]", read.size()));
        if (!message) return message.error();
        read.push_back(std::move(*message));
    }
    return read;
}

WireResult<std::string> read_tools(const JsonFields& body) {
    const auto tools = body.find("tools");
    if (!tools) return std::string();
    simdjson::dom::array list;
    if (tools->get(list) != simdjson::SUCCESS)
        return invalid_parameter("tools",
                                 fmt::format("tools is {}, but must be a list.", excerpt(*tools)));
    std::size_t index = 0;
    for (const JsonElement tool : list) {
        const std::string where = fmt::format("tools[{}]", index++);
        std::string_view name;
        if (tool["function"]["name"].get(name) != simdjson::SUCCESS || name.empty())
            return invalid_parameter(
                where,
                fmt::format("{} is {}, but must be a function with a name.", where, excerpt(tool)));
    }
    std::string_view choice;
    const auto tool_choice = body.find("tool_choice");
    const bool none =
        tool_choice && tool_choice->get(choice) == simdjson::SUCCESS && choice == "none";
    return none || list.size() == 0 ? std::string() : simdjson::minify(*tools);
}

WireResult<std::vector<model::ChatMessage>> read_response_input(const JsonElement& input) {
    std::vector<model::ChatMessage> messages;
    std::string_view text;
    if (input.get(text) == simdjson::SUCCESS) {
        messages.push_back({.role = "user", .content = std::string(text)});
        return messages;
    }
    simdjson::dom::array items;
    if (input.get(items) != simdjson::SUCCESS)
        return invalid_parameter("input", fmt::format("input is {}, but must be a string or a "
                                                      "list of items.",
                                                      excerpt(input)));
    std::size_t index = 0;
    for (const JsonElement item : items) {
        if (auto added = add_item(item, fmt::format("input[{}]", index++), messages); !added)
            return added.error();
    }
    return messages;
}

}  // namespace troupe::gateway
