// Methods of strings, lists and dicts, after Python's; what would change its object is refused.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "model/jinja_evaluator.hpp"
#include "model/jinja_format.hpp"
#include "model/jinja_strings.hpp"

namespace troupe::model::jinja {

namespace {

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
    if (!separator || is<None>(*separator)) {
        return list_of(evaluator,
                       from_right ? split_blanks_right(text, splits) : split_blanks(text, splits));
    }
    const std::string_view at = text_of(*separator).bytes();
    return list_of(evaluator, from_right ? split_right(text, at, splits) : split(text, at, splits));
}

Value splitlines_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    return list_of(evaluator,
                   split_lines(text_of(self), bool_argument(arguments, 0, "keepends", false)));
}

// What the arguments after the first, "start" and "end" in characters, leave of a text.
struct Stretch {
    std::string_view bytes;
    std::int64_t begin = 0;  // in characters
    bool exists = true;      // false: it begins behind the end
};

Stretch stretch_of(const Value& self, const Arguments& arguments) {
    const std::string_view bytes = text_of(self).bytes();
    if (arguments.positional.size() < 2) return {bytes};
    const std::vector<std::size_t> offsets = character_offsets(bytes);
    const auto count = static_cast<std::int64_t>(offsets.size() - 1);
    const auto bound = [&](std::size_t at, std::int64_t fallback) {
        std::int64_t value = integer_argument(arguments, at, "", fallback);
        if (value < 0) value += count;
        return std::max<std::int64_t>(value, 0);
    };
    const std::int64_t begin = bound(1, 0);
    const std::int64_t end = std::min(bound(2, count), count);
    if (begin > end) return {{}, begin, false};
    const std::size_t first = offsets[static_cast<std::size_t>(begin)];
    return {bytes.substr(first, offsets[static_cast<std::size_t>(end)] - first), begin};
}

// The argument is a string or a tuple of them.
template <bool at_end>
Value affix_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    const Stretch text = stretch_of(self, arguments);
    const Value& given = required(arguments, 0, "prefix");
    const List* list = as_list(given);
    if (list && !list->is_tuple) throw TemplateError("a tuple of strings is wanted, not a list");
    const std::vector<Value> affixes = list ? evaluator.iterate(given) : std::vector{given};
    return std::any_of(affixes.begin(), affixes.end(), [&](const Value& affix) {
        const std::string_view bytes = text_of(affix).bytes();
        return text.exists &&
               (at_end ? text.bytes.ends_with(bytes) : text.bytes.starts_with(bytes));
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
    const Stretch text = stretch_of(self, arguments);
    const std::string_view part = text_of(required(arguments, 0, "sub")).bytes();
    const std::size_t at = from_right ? text.bytes.rfind(part) : text.bytes.find(part);
    if (!text.exists || at == std::string_view::npos) return -1;
    return text.begin + static_cast<std::int64_t>(count_characters(text.bytes.substr(0, at)));
}

template <bool from_right>
Value find_text_method(Evaluator&, const Value& self, const Arguments& arguments) {
    return find_in<from_right>(self, arguments);
}

template <bool from_right>
Value index_text_method(Evaluator&, const Value& self, const Arguments& arguments) {
    const std::int64_t at = find_in<from_right>(self, arguments);
    if (at < 0) throw TemplateError("index() finds no such part");
    return at;
}

Value count_text_method(Evaluator&, const Value& self, const Arguments& arguments) {
    const Stretch text = stretch_of(self, arguments);
    const std::string_view part = text_of(required(arguments, 0, "sub")).bytes();
    if (!text.exists) return std::int64_t{0};
    if (part.empty()) return static_cast<std::int64_t>(count_characters(text.bytes)) + 1;
    std::int64_t count = 0;
    for (std::size_t at = text.bytes.find(part); at != std::string_view::npos;
         at = text.bytes.find(part, at + part.size())) {
        ++count;
    }
    return count;
}

// (before, separator, after); the whole on the side that is not searched from where there is none.
template <bool from_right>
Value partition_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    const Text& text = text_of(self);
    const std::string_view separator = text_of(required(arguments, 0, "sep")).bytes();
    if (separator.empty()) throw TemplateError("an empty separator");
    Heap& heap = evaluator.heap();
    const std::size_t at =
        from_right ? text.bytes().rfind(separator) : text.bytes().find(separator);
    if (at == std::string_view::npos) {
        const Value nothing = heap.text("");
        const std::vector<Value> whole_first = {self, nothing, nothing};
        const std::vector<Value> whole_last = {nothing, nothing, self};
        return heap.list(from_right ? whole_last : whole_first, true);
    }
    const std::size_t after = at + separator.size();
    const Value before = heap.text(text.part(0, at));
    const Value middle = heap.text(text.part(at, separator.size()));
    return heap.list({before, middle, heap.text(text.part(after, text.size() - after))}, true);
}

Value expandtabs_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    const Text& text = text_of(self);
    const std::int64_t size = integer_argument(arguments, 0, "tabsize", 8);
    if (size > padding_max) throw TemplateError("a padding is too wide");
    Text made;
    std::int64_t column = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text.bytes()[i];
        if (c == '\t') {
            const std::int64_t blanks = size > 0 ? size - column % size : 0;
            evaluator.heap().charge(static_cast<std::size_t>(blanks));
            made.append(std::string(static_cast<std::size_t>(blanks), ' '), Origin::from_template);
            column += blanks;
            continue;
        }
        made.append_part(text, i, 1);
        if (c == '\n' || c == '\r')
            column = 0;
        else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80)
            ++column;
    }
    return evaluator.heap().text(std::move(made));
}

Value istitle_method(Evaluator&, const Value& self, const Arguments&) {
    bool inside = false;
    bool found = false;
    bool fits = true;
    for_each_character(text_of(self).bytes(), [&](char32_t c) {
        if (is_upper(c) ? inside : is_lower(c) && !inside) fits = false;
        inside = is_upper(c) || is_lower(c);
        found = found || inside;
    });
    return found && fits;
}

bool is_ascii(char32_t c) {
    return c < 0x80;
}

Value isascii_method(Evaluator&, const Value& self, const Arguments&) {
    const std::string_view bytes = text_of(self).bytes();
    return bytes.empty() || are_all(bytes, is_ascii);
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

bool is_alphanumeric(char32_t c) {
    return is_letter(c) || is_number(c);
}

template <OfKind of_kind>
Value all_of_kind(Evaluator&, const Value& self, const Arguments&) {
    return are_all(text_of(self).bytes(), of_kind);
}

template <OfKind of_kind>
Value all_letters_of_case(Evaluator&, const Value& self, const Arguments&) {
    return have_case(text_of(self).bytes(), of_kind);
}

Value center_method(Evaluator& evaluator, const Value& self, const Arguments& arguments) {
    const Value* given = argument(arguments, 1, "fillchar");
    const Text fill = given ? text_of(*given) : Text(" ", Origin::from_template);
    if (count_characters(fill.bytes()) != 1) throw TemplateError("one character fills a padding");
    return evaluator.heap().text(
        center(text_of(self), integer_of(required(arguments, 0, "width")), fill));
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
    return evaluator.heap().text(format_braces(text_of(self), arguments));
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
    const Value& key = required(arguments, 0, "key");
    check_hashable(key);
    if (const Value* found = dict.find(key)) return *found;
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
    Entry{"casefold", change_text<lower>},
    Entry{"center", center_method},
    Entry{"count", count_text_method},
    Entry{"endswith", affix_method<true>},
    Entry{"expandtabs", expandtabs_method},
    Entry{"find", find_text_method<false>},
    Entry{"format", format_method},
    Entry{"index", index_text_method<false>},
    Entry{"isalnum", all_of_kind<is_alphanumeric>},
    Entry{"isalpha", all_of_kind<is_letter>},
    Entry{"isascii", isascii_method},
    Entry{"isdigit", all_of_kind<is_number>},
    Entry{"isdecimal", all_of_kind<is_number>},
    Entry{"isnumeric", all_of_kind<is_number>},
    Entry{"islower", all_letters_of_case<is_lower>},
    Entry{"isspace", all_of_kind<is_space>},
    Entry{"istitle", istitle_method},
    Entry{"isupper", all_letters_of_case<is_upper>},
    Entry{"join", join_method},
    Entry{"ljust", pad_method<false, ' '>},
    Entry{"lower", change_text<lower>},
    Entry{"lstrip", strip_method<true, false>},
    Entry{"partition", partition_method<false>},
    Entry{"removeprefix", remove_affix_method<false>},
    Entry{"removesuffix", remove_affix_method<true>},
    Entry{"replace", replace_method},
    Entry{"rfind", find_text_method<true>},
    Entry{"rindex", index_text_method<true>},
    Entry{"rjust", pad_method<true, ' '>},
    Entry{"rpartition", partition_method<true>},
    Entry{"rsplit", split_method<true>},
    Entry{"rstrip", strip_method<false, true>},
    Entry{"split", split_method<false>},
    Entry{"splitlines", splitlines_method},
    Entry{"startswith", affix_method<false>},
    Entry{"strip", strip_method<true, true>},
    Entry{"swapcase", change_text<swap_case>},
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
