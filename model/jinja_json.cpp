#include "model/jinja_json.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "model/utf8.hpp"

namespace troupe::model::jinja {

namespace {

class JsonWriter {
 public:
    explicit JsonWriter(const JsonStyle& style) : style_(style) {}

    void write(const Value& value, int depth) {
        check_nesting(depth);
        if (const Text* text = as_text(value)) return write_string(*text);
        if (const List* list = as_list(value)) return write_list(*list, depth);
        if (const Dict* dict = as_dict(value)) return write_dict(*dict, depth);
        put(scalar(value));
    }

    Text take() { return std::move(out_); }

 private:
    void put(std::string_view written) { out_.append(written, Origin::from_template); }

    static std::string scalar(const Value& value) {
        if (is<None>(value)) return "null";
        if (const auto* boolean = get<bool>(value)) return *boolean ? "true" : "false";
        if (is_integer(value)) return std::to_string(integer_of(value));
        if (is<double>(value)) {
            const std::string text = format_real(real_of(value));
            return text == "nan"    ? "NaN"
                   : text == "inf"  ? "Infinity"
                   : text == "-inf" ? "-Infinity"
                                    : text;
        }
        throw TemplateError(fmt::format("'{}' has no JSON form", type_name(value)));
    }

    void write_string(const Text& text) {
        constexpr std::string_view escaped = "\"\\\n\r\t\b\f";
        constexpr std::string_view letters = "\"\\nrtbf";
        put("\"");
        for (std::size_t i = 0; i < text.size(); ++i) {
            const char c = text.bytes()[i];
            if (const std::size_t at = escaped.find(c); at != std::string_view::npos) {
                put(std::string{'\\', letters[at]});
            } else if (static_cast<unsigned char>(c) < 0x20) {
                put(fmt::format("\\u{:04x}", static_cast<unsigned>(c)));
            } else if (style_.ascii_only && static_cast<unsigned char>(c) >= 0x80) {
                i += write_escape(text.bytes().substr(i)) - 1;
            } else {
                out_.append_part(text, i, 1);
            }
        }
        put("\"");
    }

    // The first character as one or two UTF-16 escapes; gives its length in bytes.
    std::size_t write_escape(std::string_view bytes) {
        const Utf8Unit unit = next_utf8(bytes);
        const bool whole = unit.form == Utf8Form::complete;
        const std::uint32_t code_point = whole ? unit.code_point : 0xFFFD;
        if (code_point < 0x10000) {
            put(fmt::format("\\u{:04x}", code_point));
        } else {
            put(fmt::format("\\u{:04x}\\u{:04x}", 0xD7C0 + (code_point >> 10),
                            0xDC00 + (code_point & 0x3FF)));
        }
        return unit.length;
    }

    void new_line(int depth) {
        if (style_.indent < 0) return;
        put("\n" + std::string(static_cast<std::size_t>(style_.indent * depth), ' '));
    }

    void write_list(const List& list, int depth) {
        if (list.items.empty()) return put("[]");
        put("[");
        for (std::size_t i = 0; i < list.items.size(); ++i) {
            if (i > 0) put(style_.item_separator);
            new_line(depth + 1);
            write(list.items[i], depth + 1);
        }
        new_line(depth);
        put("]");
    }

    void write_dict(const Dict& dict, int depth) {
        if (dict.items.empty()) return put("{}");
        auto items = dict.items;
        if (style_.sort_keys) {
            std::stable_sort(items.begin(), items.end(),
                             [](const auto& a, const auto& b) { return less(a.first, b.first); });
        }
        put("{");
        for (std::size_t i = 0; i < items.size(); ++i) {
            if (i > 0) put(style_.item_separator);
            new_line(depth + 1);
            const Text* name = as_text(items[i].first);
            write_string(name ? *name : Text(scalar(items[i].first), Origin::from_template));
            put(style_.key_separator);
            write(items[i].second, depth + 1);
        }
        new_line(depth);
        put("}");
    }

    const JsonStyle& style_;
    Text out_;
};

Value build(Heap& heap, simdjson::dom::element element, Origin origin, int depth) {
    check_nesting(depth);
    switch (element.type()) {
        case simdjson::dom::element_type::ARRAY: {
            std::vector<Value> items;
            for (const simdjson::dom::element item : simdjson::dom::array(element)) {
                items.push_back(build(heap, item, origin, depth + 1));
            }
            return heap.list(std::move(items));
        }
        case simdjson::dom::element_type::OBJECT: {
            Dict dict;
            for (const auto field : simdjson::dom::object(element)) {
                const Value key = heap.text(field.key, origin);
                dict.items.emplace_back(key, build(heap, field.value, origin, depth + 1));
            }
            return heap.dict(std::move(dict));
        }
        case simdjson::dom::element_type::STRING:
            return heap.text(std::string_view(element), origin);
        case simdjson::dom::element_type::INT64:
            return std::int64_t(element);
        case simdjson::dom::element_type::UINT64:
        case simdjson::dom::element_type::DOUBLE:
            return double(element);
        case simdjson::dom::element_type::BOOL:
            return bool(element);
        case simdjson::dom::element_type::NULL_VALUE:
            break;
    }
    return None{};
}

}  // namespace

Text to_json(const Value& value, const JsonStyle& style) {
    JsonWriter writer(style);
    writer.write(value, 0);
    return writer.take();
}

Result<Value> from_json(Heap& heap, std::string_view json, Origin origin) {
    simdjson::dom::parser parser;
    simdjson::dom::element root;
    const simdjson::padded_string padded(json);
    if (const simdjson::error_code error = parser.parse(padded).get(root)) {
        return invalid_input(fmt::format("not JSON: {}", simdjson::error_message(error)));
    }
    try {
        return build(heap, root, origin, 0);
    } catch (const TemplateError& error) {
        return invalid_input(fmt::format("JSON for a template: {}", error.what()));
    }
}

}  // namespace troupe::model::jinja
