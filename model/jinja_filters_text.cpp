// Filters on strings and single values.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "model/jinja_evaluator.hpp"
#include "model/jinja_format.hpp"
#include "model/jinja_json.hpp"
#include "model/jinja_strings.hpp"

namespace troupe::model::jinja {

namespace {

Text quote_url(const Text& text, std::string_view safe, bool plus_for_blank) {
    Text made;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text.bytes()[i];
        const bool plain = (static_cast<unsigned char>(c) < 0x80 &&
                            (is_letter(static_cast<unsigned char>(c)) || (c >= '0' && c <= '9'))) ||
                           std::string_view("_.-~").find(c) != std::string_view::npos ||
                           safe.find(c) != std::string_view::npos;
        if (plain) {
            made.append_part(text, i, 1);
        } else if (plus_for_blank && c == ' ') {
            made.append("+", Origin::from_template);
        } else {
            made.append(fmt::format("%{:02X}", static_cast<unsigned char>(c)),
                        Origin::from_template);
        }
    }
    return made;
}

// A filter that maps the input's text to text.
template <Text (*change)(const Text&)>
Value text_filter(Evaluator& evaluator, const Value& input, const Arguments&) {
    return evaluator.heap().text(change(to_text(input)));
}

Text as_markup(const Text& text) {
    Text made = text;
    made.set_markup();
    return made;
}

Text unchanged(const Text& text) {
    return text;
}

Value filter_trim(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const Value* given = argument(arguments, 0, "chars");
    const std::string_view characters =
        given && !is<None>(*given) ? text_of(*given).bytes() : std::string_view();
    return evaluator.heap().text(strip(to_text(input), characters, true, true));
}

Value filter_replace(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const Text from = to_text(required(arguments, 0, "old"));
    const Text to = to_text(required(arguments, 1, "new"));
    const Value* count = argument(arguments, 2, "count");
    const std::int64_t times = count && !is<None>(*count) ? integer_of(*count) : -1;
    return evaluator.heap().text(replace(to_text(input), from.bytes(), to, times));
}

Value filter_indent(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const Value* width = argument(arguments, 0, "width");
    Text margin;
    if (width && as_text(*width)) {
        margin = *as_text(*width);
    } else {
        const std::int64_t blanks = width ? integer_of(*width) : 4;
        if (blanks > padding_max) throw TemplateError("an indent is too wide");
        margin.append(std::string(static_cast<std::size_t>(std::max<std::int64_t>(blanks, 0)), ' '),
                      Origin::from_template);
    }
    const bool first = bool_argument(arguments, 1, "first", false);
    const bool blank = bool_argument(arguments, 2, "blank", false);
    Text text = text_of(input);
    text.append("\n", Origin::from_template);  // without it the last, empty line would be lost
    Text made;
    bool is_first = true;
    for (const Text& line : split_lines(text, false)) {
        if (!is_first) made.append("\n", Origin::from_template);
        if (is_first ? first : blank || !line.empty()) made.append(margin);
        made.append(line);
        is_first = false;
    }
    return evaluator.heap().text(std::move(made));
}

Value filter_center(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    return evaluator.heap().text(center(to_text(input), integer_argument(arguments, 0, "width", 80),
                                        Text(" ", Origin::from_template)));
}

Value filter_truncate(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const std::int64_t length = integer_argument(arguments, 0, "length", 255);
    const bool cut_words = bool_argument(arguments, 1, "killwords", false);
    const Value* given_end = argument(arguments, 2, "end");
    const Text end = given_end ? to_text(*given_end) : Text("...", Origin::from_template);
    const std::int64_t leeway = integer_argument(arguments, 3, "leeway", 5);
    const auto end_length = static_cast<std::int64_t>(count_characters(end.bytes()));
    if (length < end_length || leeway < 0) {
        throw TemplateError("truncate wants room for its end, and no negative leeway");
    }
    if (length_of(input) <= length + leeway) return input;
    const Text& text = text_of(input);
    const std::vector<std::size_t> offsets = character_offsets(text.bytes());
    Text made = text.part(0, offsets[static_cast<std::size_t>(length - end_length)]);
    if (!cut_words) {
        const std::size_t space = made.bytes().rfind(' ');
        if (space != std::string_view::npos) made = made.part(0, space);
    }
    made.append(end);
    return evaluator.heap().text(std::move(made));
}

// Each word's first letter upper, the rest lower; words are told by blanks, "-", and "(", "{", "[",
// "<" in front of them, unlike str.title().
Value filter_title(Evaluator& evaluator, const Value& input, const Arguments&) {
    const Text text = to_text(input);
    Text made;
    const std::string_view bytes = text.bytes();
    const auto separates = [](char c) {
        return (c >= '\t' && c <= '\r') ||
               std::string_view(" -({[<").find(c) != std::string_view::npos;
    };
    for (std::size_t at = 0; at < bytes.size();) {
        std::size_t end = at;
        while (end < bytes.size() && separates(bytes[end]))
            ++end;
        made.append_part(text, at, end - at);
        at = end;
        while (end < bytes.size() && !separates(bytes[end]))
            ++end;
        made.append(capitalize(text.part(at, end - at)));
        at = end;
    }
    return evaluator.heap().text(std::move(made));
}

// Runs of letters, digits and underscores.
Value filter_wordcount(Evaluator&, const Value& input, const Arguments&) {
    const Text text = to_text(input);
    std::int64_t count = 0;
    bool inside = false;
    for_each_character(text.bytes(), [&](char32_t c) {
        const bool word = is_letter(c) || is_number(c) || c == '_';
        if (word && !inside) ++count;
        inside = word;
    });
    return count;
}

// By the rules of URLs: a string, or the pairs of a dict or list.
Value filter_urlencode(Evaluator& evaluator, const Value& input, const Arguments&) {
    const Dict* dict = as_dict(input);
    if (!dict && !as_list(input))
        return evaluator.heap().text(quote_url(to_text(input), "/", false));
    Text made;
    const auto add = [&made](const Value& key, const Value& value) {
        if (!made.empty()) made.append("&", Origin::from_template);
        made.append(quote_url(to_text(key), "", true));
        made.append("=", Origin::from_template);
        made.append(quote_url(to_text(value), "", true));
    };
    if (dict) {
        for (const auto& [key, value] : dict->items)
            add(key, value);
        return evaluator.heap().text(std::move(made));
    }
    for (const Value& pair : evaluator.iterate(input)) {
        const std::vector<Value> parts = evaluator.iterate(pair);
        if (parts.size() != 2) throw TemplateError("urlencode takes pairs");
        add(parts[0], parts[1]);
    }
    return evaluator.heap().text(std::move(made));
}

Value filter_format(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    List values{arguments.positional, true};
    if (arguments.named.empty()) {
        return evaluator.heap().text(format_percent(to_text(input), &std::as_const(values)));
    }
    if (!values.items.empty()) throw TemplateError("format takes values or names, not both");
    Dict named;
    for (const auto& [name, value] : arguments.named)
        named.set(evaluator.heap().text(name), value);
    return evaluator.heap().text(format_percent(to_text(input), &std::as_const(named)));
}

Value filter_tojson(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    JsonStyle style;
    style.ascii_only = bool_argument(arguments, 0, "ensure_ascii", false);
    if (const Value* indent = argument(arguments, 1, "indent"); indent && !is<None>(*indent)) {
        style.indent = std::min<std::int64_t>(integer_of(*indent), 64);
        style.item_separator = ",";
    }
    // transformers: tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False).
    if (const Value* given = argument(arguments, 2, "separators"); given && !is<None>(*given)) {
        const std::vector<Value> parts = evaluator.iterate(*given);
        if (parts.size() != 2) throw TemplateError("tojson takes two separators");
        style.item_separator = text_of(parts[0]).bytes();
        style.key_separator = text_of(parts[1]).bytes();
    }
    style.sort_keys = bool_argument(arguments, 3, "sort_keys", false);
    return evaluator.heap().text(to_json(input, style));
}

Value filter_default(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    const bool use_for_false = bool_argument(arguments, 1, "boolean", false);
    if (!is<Undefined>(input) && !(use_for_false && !truthy(input))) return input;
    const Value* given = argument(arguments, 0, "default_value");
    return given ? *given : evaluator.heap().text("");
}

Value filter_abs(Evaluator& evaluator, const Value& input, const Arguments&) {
    if (is<double>(input)) return std::fabs(real_of(input));
    const std::int64_t value = integer_of(input);
    return value < 0 ? arithmetic(evaluator.heap(), "-", std::int64_t{0}, value) : Value(value);
}

Value filter_int(Evaluator&, const Value& input, const Arguments& arguments) {
    const Value* given = argument(arguments, 0, "default");
    const Value fallback = given ? *given : Value(std::int64_t{0});
    if (is<Undefined>(input)) throw TemplateError("an integer of an undefined value");
    if (is<double>(input)) return truncated(real_of(input));
    if (is_integer(input)) return integer_of(input);
    const Text* text = as_text(input);
    if (!text) return fallback;
    const Text digits = strip(*text, {}, true, true);
    const char* begin = digits.bytes().data();
    const char* end = begin + digits.size();
    if (digits.bytes().starts_with('+')) ++begin;
    const std::int64_t base = integer_argument(arguments, 1, "base", 10);
    if (base < 2 || base > 36) throw TemplateError("a base is from 2 to 36");
    std::int64_t integer = 0;
    if (const auto parsed = std::from_chars(begin, end, integer, static_cast<int>(base));
        parsed.ec == std::errc() && parsed.ptr == end) {
        return integer;
    }
    double real = 0;
    const auto parsed = std::from_chars(begin, end, real);
    return parsed.ec == std::errc() && parsed.ptr == end ? Value(truncated(real)) : fallback;
}

Value filter_float(Evaluator&, const Value& input, const Arguments& arguments) {
    const Value* given = argument(arguments, 0, "default");
    if (is<Undefined>(input)) throw TemplateError("a float of an undefined value");
    if (is_number(input)) return real_of(input);
    double real = 0;
    if (const Text* text = as_text(input)) {
        const Text digits = strip(*text, {}, true, true);
        const char* end = digits.bytes().data() + digits.size();
        const auto parsed = std::from_chars(digits.bytes().data(), end, real);
        if (parsed.ec == std::errc() && parsed.ptr == end && !digits.empty()) return real;
    }
    return given ? *given : Value(0.0);
}

Value filter_round(Evaluator&, const Value& input, const Arguments& arguments) {
    const std::int64_t precision =
        std::clamp<std::int64_t>(integer_argument(arguments, 0, "precision", 0), -15, 15);
    const Value* method = argument(arguments, 1, "method");
    const std::string_view name = method ? text_of(*method).bytes() : "common";
    const double scale = std::pow(10.0, static_cast<double>(precision));
    if (name == "ceil") return (std::ceil(real_of(input) * scale) + 0.0) / scale;
    if (name == "floor") return std::floor(real_of(input) * scale) / scale;
    if (name != "common") throw TemplateError("round knows common, ceil and floor");
    if (is_integer(input) && precision >= 0) return integer_of(input);
    // Halves of the exact decimal value go to even, as in Python's round().
    const double rounded =
        precision < 0
            ? std::nearbyint(real_of(input) * scale) / scale
            : std::strtod(fmt::format("{:.{}f}", real_of(input), precision).c_str(), nullptr);
    return is_integer(input) ? Value(truncated(rounded)) : Value(rounded);
}

Value filter_attr(Evaluator& evaluator, const Value& input, const Arguments& arguments) {
    // Attributes in the narrow sense: what a dict holds are items.
    if (as_dict(input)) return Undefined{};
    return evaluator.attribute(input, text_of(required(arguments, 0, "name")).bytes());
}

constexpr Named<FilterFunction> text_filters[] = {
    {"abs", filter_abs},
    {"attr", filter_attr},
    {"capitalize", text_filter<capitalize>},
    {"center", filter_center},
    {"d", filter_default},
    {"default", filter_default},
    {"e", text_filter<escape_html>},
    {"escape", text_filter<escape_html>},
    {"float", filter_float},
    {"forceescape", text_filter<escape_html>},
    {"format", filter_format},
    {"indent", filter_indent},
    {"int", filter_int},
    {"lower", text_filter<lower>},
    {"replace", filter_replace},
    {"round", filter_round},
    {"safe", text_filter<as_markup>},
    {"string", text_filter<unchanged>},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", text_filter<upper>},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
};

}  // namespace

FilterFunction find_filter(std::string_view name) {
    const FilterFunction found = find_named(text_filters, name);
    return found ? found : find_sequence_filter(name);
}

Value apply_filter(Evaluator& evaluator, std::string_view name, const Value& input,
                   const Arguments& arguments) {
    const FilterFunction filter = find_filter(name);
    if (!filter) throw TemplateError(fmt::format("the filter '{}' is not known", name));
    return filter(evaluator, input, arguments);
}

}  // namespace troupe::model::jinja
