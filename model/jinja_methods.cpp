// Methods of strings, lists and dicts, after Python's; what would change its object is refused.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/jinja_evaluator.hpp"
#include "model/jinja_strings.hpp"

namespace troupe::model::jinja {

namespace {

constexpr std::int64_t padding_max = 1 << 16;

template <Text (*change)(const Text&)>
Value change_text(Evaluator& evaluator, const Value& self, const Arguments&) {
    return evaluator.heap().text(change(text_of(self)));
}

template <bool left, bool right>
Value strip_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    const Value* given = argument(arguments, 0, "chars");
    const std::string_view characters =
        given && !is<None>(*given) ? text_of(*given).bytes() : std::string_view();
    return evaluator.heap().text(strip(text_of(self), characters, left, right));
}

Value list_of(Evaluator& evaluator, std::vector<Text> texts) {
    std::vector<Value> items;
    for (Text& text : texts)
        items.push_back(evaluator.heap().text(std::move(text)));
    evaluator.spend(items.size());
    return evaluator.heap().list(std::move(items));
}

template <bool from_right>
Value split_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    const Value* separator = argument(arguments, 0, "sep");
    const std::int64_t splits = integer_argument(arguments, 1, "maxsplit", -1);
    const Text& text = text_of(self);
    if (!separator || is<None>(*separator)) return list_of(evaluator, split_blanks(text, splits));
    const std::string_view at = text_of(*separator).bytes();
    return list_of(evaluator, from_right ? split_right(text, at, splits) : split(text, at, splits));
}

Value splitlines_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    return list_of(evaluator,
                   split_lines(text_of(self), bool_argument(arguments, 0, "keepends", false)));
}

// The argument is a string or a tuple of them.
template <bool at_end>
Value affix_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    const std::string_view text = text_of(self).bytes();
    const Value& given = required(arguments, 0, "prefix");
    const std::vector<Value> affixes =
        as_list(given) ? evaluator.iterate(given) : std::vector{given};
    return std::any_of(affixes.begin(), affixes.end(), [&](const Value& affix) {
        const std::string_view bytes = text_of(affix).bytes();
        return at_end ? text.ends_with(bytes) : text.starts_with(bytes);
    });
}

template <bool at_end>
Value remove_affix_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    const Text& text = text_of(self);
    const std::string_view affix = text_of(required(arguments, 0, "prefix")).bytes();
    const bool has = at_end ? text.bytes().ends_with(affix) : text.bytes().starts_with(affix);
    if (!has) return self;
    return evaluator.heap().text(text.part(at_end ? 0 : affix.size(), text.size() - affix.size()));
}

Value replace_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    return evaluator.heap().text(replace(
        text_of(self), text_of(required(arguments, 0, "old")).bytes(),
        text_of(required(arguments, 1, "new")), integer_argument(arguments, 2, "count", -1)));
}

// In characters; -1 where there is none.
template <bool from_right>
std::int64_t find_in(const Value& self, const Arguments& arguments) {
    const std::string_view text = text_of(self).bytes();
    const std::string_view part = text_of(required(arguments, 0, "sub")).bytes();
    const std::size_t at = from_right ? text.rfind(part) : text.find(part);
    if (at == std::string_view::npos) return -1;
    return static_cast<std::int64_t>(count_characters(text.substr(0, at)));
}

template <bool from_right>
Value find_text_method(Evaluator&, const Value& self, const Arguments& arguments) {
    return find_in<from_right>(self, arguments);
}

Value index_text_method(Evaluator&, const Value& self, const Arguments& arguments) {
    const std::int64_t at = find_in<false>(self, arguments);
    if (at < 0) throw TemplateError("index() finds no such part");
    return at;
}

Value count_text_method(Evaluator&, const Value& self, const Arguments& arguments) {
    const std::string_view part = text_of(required(arguments, 0, "sub")).bytes();
    if (part.empty()) throw TemplateError("count() of nothing");
    return static_cast<std::int64_t>(split(text_of(self), part, -1).size()) - 1;
}

Value join_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    Text made;
    bool first = true;
    for (const Value& item : evaluator.iterate(required(arguments, 0, "iterable"))) {
        if (!first) made.append(text_of(self));
        made.append(text_of(item));
        first = false;
    }
    return evaluator.heap().text(std::move(made));
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_alphanumeric(char c) {
    return is_letter(c) || is_digit(c);
}

template <bool (*of_kind)(char)>
Value all_of_kind(Evaluator&, const Value& self, const Arguments&) {
    const std::string_view bytes = text_of(self).bytes();
    return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), of_kind);
}

template <bool (*of_kind)(char)>
Value all_letters_of_case(Evaluator&, const Value& self, const Arguments&) {
    const std::string_view bytes = text_of(self).bytes();
    return std::any_of(bytes.begin(), bytes.end(), is_letter) &&
           std::all_of(bytes.begin(), bytes.end(),
                       [](char c) { return !is_letter(c) || of_kind(c); });
}

template <bool on_left, char fallback>
Value pad_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    const Text& text = text_of(self);
    const std::int64_t width = integer_of(required(arguments, 0, "width"));
    if (width > padding_max) throw TemplateError("a padding is too wide");
    const Value* given = argument(arguments, 1, "fillchar");
    const Text fill =
        given ? text_of(*given) : Text(std::string(1, fallback), Origin::from_template);
    const auto length = static_cast<std::int64_t>(count_characters(text.bytes()));
    Text padding;
    for (std::int64_t i = length; i < width; ++i)
        padding.append(fill);
    Text made = on_left ? padding : text;
    made.append(on_left ? text : padding);
    return evaluator.heap().text(std::move(made));
}

Value format_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    // "{}" and "{0}" and "{name}", without formats.
    const Text& text = text_of(self);
    const std::string_view bytes = text.bytes();
    Text made;
    std::size_t next = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool doubled = i + 1 < bytes.size() && bytes[i + 1] == bytes[i];
        if ((bytes[i] == '{' || bytes[i] == '}') && doubled) {
            made.append_part(text, ++i, 1);
        } else if (bytes[i] == '{') {
            const std::size_t end = bytes.find('}', i);
            if (end == std::string_view::npos) throw TemplateError("format() has an open '{'");
            const std::string name(bytes.substr(i + 1, end - i - 1));
            const bool number = !name.empty() && std::all_of(name.begin(), name.end(), is_digit);
            const std::size_t at = name.empty()                ? next++
                                   : number && name.size() < 4 ? std::stoul(name)
                                                               : arguments.positional.size();
            made.append(to_text(required(arguments, at, name)));
            i = end;
        } else {
            made.append_part(text, i, 1);
        }
    }
    return evaluator.heap().text(std::move(made));
}

Value items_method(Evaluator& evaluator, const Value& self, const Arguments&) {
    std::vector<Value> items;
    for (const auto& [key, value] : as_dict(self)->items) {
        items.push_back(evaluator.heap().list({key, value}, true));
    }
    evaluator.spend(items.size());
    return evaluator.heap().list(std::move(items));
}

Value keys_method(Evaluator& evaluator, const Value& self, const Arguments&) {
    return evaluator.heap().list(evaluator.iterate(self));
}

Value values_method(Evaluator& evaluator, const Value& self, const Arguments&) {
    std::vector<Value> values;
    for (const auto& item : as_dict(self)->items)
        values.push_back(item.second);
    evaluator.spend(values.size());
    return evaluator.heap().list(std::move(values));
}

Value get_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    const Dict& dict = *as_dict(self);
    evaluator.spend(dict.items.size() / 16);
    if (const Value* found = dict.find(required(arguments, 0, "key"))) return *found;
    const Value* fallback = argument(arguments, 1, "default");
    return fallback ? *fallback : Value(None{});
}

Value copy_method(Evaluator&, const Value& self, const Arguments&) {
    return self;
}

Value refuse_change(Evaluator&, const Value& self, const Arguments&) {
    throw TemplateError(fmt::format("a {} cannot be changed in a template", type_name(self)));
}

Value index_list_method(Evaluator&, const Value& self, const Arguments& arguments) {
    const std::vector<Value>& items = as_list(self)->items;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (equal(items[i], required(arguments, 0, "value"))) return static_cast<std::int64_t>(i);
    }
    throw TemplateError("index() finds no such item");
}

Value count_list_method(Evaluator&, const Value& self, const Arguments& arguments) {
    std::int64_t count = 0;
    for (const Value& item : as_list(self)->items) {
        if (equal(item, required(arguments, 0, "value"))) ++count;
    }
    return count;
}

struct Entry {
    std::string_view name;
    MethodFunction function;
};

constexpr std::array text_methods = {
    Entry{"capitalize", change_text<capitalize>},
    Entry{"count", count_text_method},
    Entry{"endswith", affix_method<true>},
    Entry{"find", find_text_method<false>},
    Entry{"format", format_method},
    Entry{"index", index_text_method},
    Entry{"isalnum", all_of_kind<is_alphanumeric>},
    Entry{"isalpha", all_of_kind<is_letter>},
    Entry{"isdigit", all_of_kind<is_digit>},
    Entry{"isdecimal", all_of_kind<is_digit>},
    Entry{"isnumeric", all_of_kind<is_digit>},
    Entry{"islower", all_letters_of_case<is_lower>},
    Entry{"isspace", all_of_kind<is_space>},
    Entry{"isupper", all_letters_of_case<is_upper>},
    Entry{"join", join_method},
    Entry{"ljust", pad_method<false, ' '>},
    Entry{"lower", change_text<lower>},
    Entry{"lstrip", strip_method<true, false>},
    Entry{"removeprefix", remove_affix_method<false>},
    Entry{"removesuffix", remove_affix_method<true>},
    Entry{"replace", replace_method},
    Entry{"rfind", find_text_method<true>},
    Entry{"rjust", pad_method<true, ' '>},
    Entry{"rsplit", split_method<true>},
    Entry{"rstrip", strip_method<false, true>},
    Entry{"split", split_method<false>},
    Entry{"splitlines", splitlines_method},
    Entry{"startswith", affix_method<false>},
    Entry{"strip", strip_method<true, true>},
    Entry{"title", change_text<title>},
    Entry{"upper", change_text<upper>},
    Entry{"zfill", pad_method<true, '0'>},
};

constexpr std::array list_methods = {
    Entry{"append", refuse_change}, Entry{"clear", refuse_change},
    Entry{"copy", copy_method},     Entry{"count", count_list_method},
    Entry{"extend", refuse_change}, Entry{"index", index_list_method},
    Entry{"insert", refuse_change}, Entry{"pop", refuse_change},
    Entry{"remove", refuse_change}, Entry{"reverse", refuse_change},
    Entry{"sort", refuse_change},
};

constexpr std::array dict_methods = {
    Entry{"clear", refuse_change},   Entry{"copy", copy_method},
    Entry{"get", get_method},        Entry{"items", items_method},
    Entry{"keys", keys_method},      Entry{"pop", refuse_change},
    Entry{"popitem", refuse_change}, Entry{"setdefault", refuse_change},
    Entry{"update", refuse_change},  Entry{"values", values_method},
};

template <std::size_t count>
MethodFunction find_in_table(const std::array<Entry, count>& table, std::string_view name) {
    for (const Entry& entry : table) {
        if (entry.name == name) return entry.function;
    }
    return nullptr;
}

}  // namespace

MethodFunction find_method(const Value& self, std::string_view name) {
    if (as_text(self)) return find_in_table(text_methods, name);
    if (as_list(self)) return find_in_table(list_methods, name);
    if (as_dict(self)) return find_in_table(dict_methods, name);
    return nullptr;
}

}  // namespace troupe::model::jinja
