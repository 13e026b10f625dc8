#include "model/jinja_value.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "model/utf8.hpp"

namespace troupe::model::jinja {

namespace {

bool equal_at(const Value& a, const Value& b, int depth);

bool equal_lists(const List& a, const List& b, int depth) {
    if (a.is_tuple != b.is_tuple || a.items.size() != b.items.size()) return false;
    for (std::size_t i = 0; i < a.items.size(); ++i) {
        if (!equal_at(a.items[i], b.items[i], depth + 1)) return false;
    }
    return true;
}

bool equal_dicts(const Dict& a, const Dict& b, int depth) {
    if (a.items.size() != b.items.size()) return false;
    for (const auto& [key, value] : a.items) {
        const Value* other = b.find(key);
        if (other == nullptr || !equal_at(value, *other, depth + 1)) return false;
    }
    return true;
}

bool equal_at(const Value& a, const Value& b, int depth) {
    check_nesting(depth);
    if (is_number(a) && is_number(b)) {
        if (is_integer(a) && is_integer(b)) return integer_of(a) == integer_of(b);
        return real_of(a) == real_of(b);
    }
    if (a.index() != b.index()) return false;
    if (is<Undefined>(a) || is<None>(a)) return true;
    if (const Text* text = as_text(a)) return text->bytes() == as_text(b)->bytes();
    if (const List* list = as_list(a)) return equal_lists(*list, *as_list(b), depth);
    if (const Dict* dict = as_dict(a)) return equal_dicts(*dict, *as_dict(b), depth);
    return a == b;  // the same object
}

bool less_lists(const List& a, const List& b, int depth);

bool less_at(const Value& a, const Value& b, int depth) {
    check_nesting(depth);
    if (is_number(a) && is_number(b)) {
        if (is_integer(a) && is_integer(b)) return integer_of(a) < integer_of(b);
        return real_of(a) < real_of(b);
    }
    if (as_text(a) && as_text(b)) return as_text(a)->bytes() < as_text(b)->bytes();
    if (as_list(a) && as_list(b) && as_list(a)->is_tuple == as_list(b)->is_tuple) {
        return less_lists(*as_list(a), *as_list(b), depth);
    }
    throw TemplateError(
        fmt::format("'{}' and '{}' cannot be put in order", type_name(a), type_name(b)));
}

bool less_lists(const List& a, const List& b, int depth) {
    for (std::size_t i = 0; i < a.items.size() && i < b.items.size(); ++i) {
        if (!equal_at(a.items[i], b.items[i], depth + 1)) {
            return less_at(a.items[i], b.items[i], depth + 1);
        }
    }
    return a.items.size() < b.items.size();
}

void append_quoted(Text& out, const Text& text) {
    const std::string_view bytes = text.bytes();
    const bool double_quotes =
        bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos;
    const char quote = double_quotes ? '"' : '\'';
    const auto put = [&out](std::string_view written) {
        out.append(written, Origin::from_template);
    };
    if (text.is_markup()) put("Markup(");
    put({&quote, 1});
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const auto byte = static_cast<unsigned char>(bytes[i]);
        if (bytes[i] == quote || byte == '\\') {
            put("\\");
            out.append_part(text, i, 1);
        } else if (byte == '\n') {
            put("\\n");
        } else if (byte == '\r') {
            put("\\r");
        } else if (byte == '\t') {
            put("\\t");
        } else if (byte < 0x20 || byte == 0x7F) {
            put(fmt::format("\\x{:02x}", byte));
        } else {
            out.append_part(text, i, 1);
        }
    }
    put({&quote, 1});
    if (text.is_markup()) put(")");
}

void append_list_repr(Text& out, const List& list, int depth) {
    const auto put = [&out](std::string_view written) {
        out.append(written, Origin::from_template);
    };
    put(list.is_tuple ? "(" : "[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
        if (i > 0) put(", ");
        append_repr(out, list.items[i], depth + 1);
    }
    if (list.is_tuple && list.items.size() == 1) put(",");
    put(list.is_tuple ? ")" : "]");
}

void append_dict_repr(Text& out, const Dict& dict, int depth) {
    const auto put = [&out](std::string_view written) {
        out.append(written, Origin::from_template);
    };
    put("{");
    for (std::size_t i = 0; i < dict.items.size(); ++i) {
        if (i > 0) put(", ");
        append_repr(out, dict.items[i].first, depth + 1);
        put(": ");
        append_repr(out, dict.items[i].second, depth + 1);
    }
    put("}");
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
    for (const auto& [name, value] : items) {
        const Text* text = as_text(name);
        if (text && text->bytes() == key) return &value;
    }
    return nullptr;
}

const Value* Dict::find(const Value& key) const {
    if (const Text* text = as_text(key)) return find(text->bytes());
    for (const auto& [name, value] : items) {
        if (equal(name, key)) return &value;
    }
    return nullptr;
}

void Dict::set(const Value& key, const Value& value) {
    for (auto& [name, old] : items) {
        if (equal(name, key)) {
            old = value;
            return;
        }
    }
    items.emplace_back(key, value);
}

void Heap::charge(std::size_t bytes) {
    if (bytes > budget_bytes_ - built_bytes_) {
        throw TemplateError(fmt::format("it builds more than {} bytes", budget_bytes_));
    }
    built_bytes_ += bytes;
}

Value Heap::text(Text text) {
    charge(2 * text.size());
    return static_cast<const Text*>(make(std::move(text)));
}

Value Heap::list(std::vector<Value> items, bool is_tuple) {
    charge(items.size() * sizeof(Value));
    return static_cast<const List*>(make(List{std::move(items), is_tuple}));
}

Value Heap::dict(Dict dict) {
    charge(dict.items.size() * 2 * sizeof(Value));
    return static_cast<const Dict*>(make(std::move(dict)));
}

std::string_view type_name(const Value& value) {
    if (const List* list = as_list(value)) return list->is_tuple ? "tuple" : "list";
    constexpr std::string_view names[] = {"undefined", "None", "bool",    "int",
                                          "float",     "str",  "list",    "dict",
                                          "namespace", "loop", "function"};
    return names[value.index()];
}

bool is_integer(const Value& value) {
    return is<bool>(value) || is<std::int64_t>(value);
}
bool is_number(const Value& value) {
    return is_integer(value) || is<double>(value);
}

std::int64_t integer_of(const Value& value) {
    if (const auto* boolean = get<bool>(value)) return *boolean ? 1 : 0;
    if (const auto* integer = get<std::int64_t>(value)) return *integer;
    throw TemplateError(fmt::format("'{}' is not an integer", type_name(value)));
}

double real_of(const Value& value) {
    const auto* real = get<double>(value);
    return real ? *real : static_cast<double>(integer_of(value));
}

std::int64_t truncated(double value) {
    if (!(std::fabs(value) < 9.2e18)) throw TemplateError("a number is too large");
    return static_cast<std::int64_t>(value);
}

bool truthy(const Value& value) {
    if (is<Undefined>(value) || is<None>(value)) return false;
    if (is_integer(value)) return integer_of(value) != 0;
    if (const auto* real = get<double>(value)) return *real != 0;
    if (const Text* text = as_text(value)) return !text->empty();
    if (const List* list = as_list(value)) return !list->items.empty();
    if (const Dict* dict = as_dict(value)) return !dict->items.empty();
    return true;
}

bool equal(const Value& a, const Value& b) {
    return equal_at(a, b, 0);
}
bool less(const Value& a, const Value& b) {
    return less_at(a, b, 0);
}

void check_hashable(const Value& value) {
    const List* list = as_list(value);
    if (as_dict(value) || (list && !list->is_tuple)) {
        throw TemplateError(fmt::format("a {} cannot be a key", type_name(value)));
    }
    if (!list) return;
    for (const Value& item : list->items)
        check_hashable(item);  // as deep as the expression that wrote the tuple
}

std::string format_real(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    // Python's repr: the shortest digits that read back, scientific outside 1e-4 .. 1e16.
    const double size = std::fabs(value);
    const bool scientific = size != 0 && (size < 1e-4 || size >= 1e16);
    char digits[64];
    const auto end =
        std::to_chars(digits, digits + sizeof digits, value,
                      scientific ? std::chars_format::scientific : std::chars_format::fixed);
    std::string text(digits, end.ptr);
    if (!scientific && text.find('.') == std::string::npos) text += ".0";
    return text;
}

Text to_text(const Value& value) {
    if (const Text* text = as_text(value)) return *text;
    Text made;
    if (!is<Undefined>(value)) append_repr(made, value);
    return made;
}

void append_repr(Text& out, const Value& value, int depth) {
    check_nesting(depth);
    if (const Text* text = as_text(value)) return append_quoted(out, *text);
    if (const List* list = as_list(value)) return append_list_repr(out, *list, depth);
    if (const Dict* dict = as_dict(value)) return append_dict_repr(out, *dict, depth);
    std::string written;
    if (is<Undefined>(value)) {
        written = "Undefined";
    } else if (is<None>(value)) {
        written = "None";
    } else if (const auto* boolean = get<bool>(value)) {
        written = *boolean ? "True" : "False";
    } else if (const auto* integer = get<std::int64_t>(value)) {
        written = std::to_string(*integer);
    } else if (const auto* real = get<double>(value)) {
        written = format_real(*real);
    } else {
        written = fmt::format("<{}>", type_name(value));
    }
    out.append(written, Origin::from_template);
}

std::size_t count_characters(std::string_view bytes) {
    std::size_t count = 0;
    for (; !bytes.empty(); ++count)
        bytes.remove_prefix(next_utf8(bytes).length);
    return count;
}

std::vector<std::size_t> character_offsets(std::string_view bytes) {
    std::vector<std::size_t> offsets;
    offsets.reserve(bytes.size() + 1);
    for (std::size_t at = 0; at < bytes.size();) {
        offsets.push_back(at);
        at += next_utf8(bytes.substr(at)).length;
    }
    offsets.push_back(bytes.size());
    return offsets;
}

void check_nesting(int depth) {
    if (depth > nesting_max) throw TemplateError("a value is nested too deeply");
}

}  // namespace troupe::model::jinja
