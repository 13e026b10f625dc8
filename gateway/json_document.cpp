#include "gateway/json_document.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

namespace troupe::gateway {
namespace {

// Texts up to this size share a parser per thread; its buffers take about 20 bytes a byte, so a
// large text gets one of its own, which goes with it.
constexpr std::size_t kSharedParserBytes = 64 << 10;

actors::RequestError invalid_json(simdjson::error_code code, std::size_t depth_max) {
    std::string message;
    if (code == simdjson::DEPTH_ERROR)
        message = fmt::format("The JSON is nested deeper than {} levels.", depth_max);
    else if (code == simdjson::NUMBER_ERROR)
        message = "The text is not valid JSON: a number in it is malformed, or beyond 64 bits.";
    else
        message = fmt::format("The text is not valid JSON: {}", simdjson::error_message(code));
    return {.status = 400, .code = "invalid_json", .message = std::move(message), .param = {}};
}

actors::RequestError wrong_type(const std::string& name, const JsonElement& value,
                                std::string_view expected) {
    return invalid_parameter(
        name, fmt::format("{} is {}, but must be {}.", name, excerpt(value), expected));
}

std::string range_text(double least, double most) {
    const bool unbounded = most == std::numeric_limits<double>::max();
    if (least == std::numeric_limits<double>::denorm_min())
        return unbounded ? "above 0" : fmt::format("above 0 and at most {}", most);
    return unbounded ? fmt::format("of {} or more", least)
                     : fmt::format("between {} and {}", least, most);
}

std::string range_text(std::int64_t least, std::int64_t most) {
    if (most == std::numeric_limits<std::int64_t>::max())
        return fmt::format("an integer of {} or more", least);
    return fmt::format("an integer between {} and {}", least, most);
}

WireResult<> parse_with(simdjson::dom::parser& parser, std::string_view text, std::size_t depth_max,
                        const std::function<WireResult<>(const JsonElement&)>& read) {
    if (parser.max_depth() != depth_max || parser.capacity() == 0) {
        if (const auto code = parser.allocate(1024, depth_max); code != simdjson::SUCCESS)
            return invalid_json(code, depth_max);
    }
    JsonElement root;
    if (const auto code = parser.parse(text.data(), text.size()).get(root);
        code != simdjson::SUCCESS)
        return invalid_json(code, depth_max);
    return read(root);
}

}  // namespace

actors::RequestError invalid_parameter(std::string_view param, std::string message) {
    return {.status = 400,
            .code = "invalid_parameter",
            .message = std::move(message),
            .param = std::string(param)};
}

actors::RequestError unsupported(std::string_view param, std::string message) {
    return {.status = 400,
            .code = "unsupported_parameter",
            .message = std::move(message),
            .param = std::string(param)};
}

WireResult<> with_json(std::string_view text, std::size_t depth_max,
                       const std::function<WireResult<>(const JsonElement& root)>& read) {
    if (text.size() > kSharedParserBytes) {
        simdjson::dom::parser parser;
        return parse_with(parser, text, depth_max, read);
    }
    static thread_local simdjson::dom::parser parser;
    return parse_with(parser, text, depth_max, read);
}

std::string excerpt(const JsonElement& element, std::size_t bytes_max) {
    std::string text = simdjson::minify(element);
    if (text.size() <= bytes_max) return text;
    std::size_t end = bytes_max;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U)
        --end;
    text.resize(end);
    return text + "...";
}

WireResult<JsonFields> JsonFields::of(const JsonElement& element, std::string_view what) {
    simdjson::dom::object object;
    if (element.get(object) != simdjson::SUCCESS)
        return invalid_parameter(
            what, fmt::format("{} is {}, but must be an object.", what, excerpt(element)));
    return JsonFields(object);
}

std::optional<JsonElement> JsonFields::find(std::string_view name) const {
    std::optional<JsonElement> found;
    for (const simdjson::dom::key_value_pair field : object_) {
        if (field.key == name) found = field.value;
    }
    if (found && found->is_null()) found.reset();
    return found;
}

WireResult<std::optional<std::string>> JsonFields::string(std::string_view name) const {
    const auto value = find(name);
    if (!value) return std::optional<std::string>();
    std::string_view text;
    if (value->get(text) != simdjson::SUCCESS)
        return wrong_type(full_name(name), *value, "a string");
    return std::optional<std::string>(text);
}

WireResult<std::optional<bool>> JsonFields::boolean(std::string_view name) const {
    const auto value = find(name);
    if (!value) return std::optional<bool>();
    bool flag = false;
    if (value->get(flag) != simdjson::SUCCESS)
        return wrong_type(full_name(name), *value, "true or false");
    return std::optional<bool>(flag);
}

WireResult<std::optional<double>> JsonFields::number(std::string_view name, double least,
                                                     double most) const {
    const auto value = find(name);
    if (!value) return std::optional<double>();
    double number = 0;
    if (value->get(number) != simdjson::SUCCESS || !(number >= least && number <= most))
        return wrong_type(full_name(name), *value,
                          fmt::format("a number {}", range_text(least, most)));
    return std::optional<double>(number);
}

WireResult<std::optional<std::int64_t>> JsonFields::integer(std::string_view name,
                                                            std::int64_t least,
                                                            std::int64_t most) const {
    const auto value = find(name);
    if (!value) return std::optional<std::int64_t>();
    std::int64_t number = 0;
    if (value->get(number) != simdjson::SUCCESS || number < least || number > most)
        return wrong_type(full_name(name), *value, range_text(least, most));
    return std::optional<std::int64_t>(number);
}

}  // namespace troupe::gateway
