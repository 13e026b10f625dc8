// Python's two ways of formatting values into text: "%" and str.format().
// https://docs.python.org/3/library/stdtypes.html#printf-style-string-formatting
// https://docs.python.org/3/library/string.html#format-specification-mini-language
#include "model/jinja_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "model/jinja_evaluator.hpp"
#include "model/utf8.hpp"

namespace troupe::model::jinja {

namespace {

constexpr std::size_t width_max = 1 << 12;
constexpr std::size_t precision_max = 100;

struct Spec {
    std::string fill = " ";
    char align = '\0';  // < > ^ or = (behind the sign); none: what the type is used to
    char sign = '-';    // + - or a blank
    bool zeros = false;
    bool commas = false;
    bool alternate = false;  // 0x before a hexadecimal number
    std::size_t width = 0;
    std::optional<std::size_t> precision;
    char type = '\0';
};

// Reads one piece of a format after the other.
class SpecReader {
 public:
    explicit SpecReader(std::string_view text) : text_(text) {}

    [[nodiscard]] bool at_end() const { return at_ == text_.size(); }
    [[nodiscard]] char peek() const { return at_end() ? '\0' : text_[at_]; }
    [[nodiscard]] std::size_t at() const { return at_; }
    char take() { return at_end() ? '\0' : text_[at_++]; }
    bool take(char wanted) {
        if (peek() != wanted || at_end()) return false;
        ++at_;
        return true;
    }
    [[nodiscard]] std::optional<std::size_t> take_number(std::size_t most) {
        const std::size_t begin = at_;
        std::size_t number = 0;
        while (is_digit(peek())) {
            number = std::min(number * 10 + static_cast<std::size_t>(take() - '0'), most + 1);
        }
        if (number > most) throw TemplateError("a format is too wide");
        return at_ == begin ? std::nullopt : std::optional(number);
    }

    // "*>+#08,.2f"
    Spec take_format_spec() {
        Spec spec;
        const auto is_align = [](char c) {
            return c != '\0' && std::string_view("<>=^").find(c) != std::string_view::npos;
        };
        if (!at_end()) {
            const std::size_t length = next_utf8(text_.substr(at_)).length;
            if (at_ + length < text_.size() && is_align(text_[at_ + length])) {
                spec.fill = text_.substr(at_, length);
                at_ += length;
            }
        }
        if (is_align(peek())) spec.align = take();
        if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = take();
        spec.alternate = take('#');
        spec.zeros = take('0');
        spec.width = take_number(width_max).value_or(0);
        spec.commas = take(',');
        if (take('.')) {
            spec.precision = take_number(precision_max);
            if (!spec.precision) throw TemplateError("a format's precision is missing");
        }
        spec.type = take();
        if (!at_end()) throw TemplateError("a format that is not known");
        return spec;
    }

 private:
    std::string_view text_;
    std::size_t at_ = 0;
};

Text repeated(std::string_view fill, std::size_t count) {
    std::string made;
    for (std::size_t i = 0; i < count; ++i)
        made += fill;
    return {made, Origin::from_template};
}

// `sign_length` leading bytes stay in front of zeros.
Text padded(const Text& text, const Spec& spec, char usual_align, std::size_t sign_length = 0) {
    const std::size_t length = count_characters(text.bytes());
    if (length >= spec.width) return text;
    const std::size_t missing = spec.width - length;
    const char align = spec.align != '\0' ? spec.align : spec.zeros ? '=' : usual_align;
    const std::string_view fill =
        spec.zeros && spec.align == '\0' ? std::string_view("0") : spec.fill;
    const std::size_t left = align == '<'   ? 0
                             : align == '^' ? missing / 2
                             : align == '=' ? 0
                                            : missing;
    Text made = repeated(fill, left);
    made.append_part(text, 0, sign_length);
    if (align == '=') made.append(repeated(fill, missing));
    made.append_part(text, sign_length, text.size() - sign_length);
    if (align != '=') made.append(repeated(fill, missing - left));
    return made;
}

Text cut(const Text& text, const Spec& spec) {
    if (!spec.precision) return text;
    const std::vector<std::size_t> offsets = character_offsets(text.bytes());
    return text.part(0, offsets[std::min(*spec.precision, offsets.size() - 1)]);
}

std::string with_commas(std::string digits) {
    const std::size_t point = std::min(digits.find_first_not_of("0123456789"), digits.size());
    for (std::size_t at = point; at > 3; at -= 3)
        digits.insert(at - 3, ",");
    return digits;
}

Text signed_number(bool negative, std::string digits, const Spec& spec) {
    if (spec.commas) digits = with_commas(std::move(digits));
    const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    return padded({sign + digits, Origin::from_template}, spec, '>', sign.size());
}

Text format_integer(std::int64_t value, const Spec& spec) {
    const auto magnitude =
        value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
    const char* const prefix = spec.alternate ? "#" : "";
    const char type = spec.type == 'i' || spec.type == 'u' || spec.type == '\0' ? 'd' : spec.type;
    std::string digits = fmt::format(
        fmt::runtime(fmt::format("{{:{}{}}}", type == 'd' ? "" : prefix, type)), magnitude);
    if (spec.precision && digits.size() < *spec.precision) {
        digits.insert(0, *spec.precision - digits.size(), '0');
    }
    return signed_number(value < 0, std::move(digits), spec);
}

Text format_real_as(double value, const Spec& spec) {
    const std::string pattern =
        fmt::format("%{}.*{}", spec.alternate ? "#" : "", spec.type == '%' ? 'f' : spec.type);
    char digits[512];
    const int precision = static_cast<int>(spec.precision.value_or(6));
    const double size = std::fabs(value) * (spec.type == '%' ? 100 : 1);
    const int written = std::snprintf(digits, sizeof digits, pattern.c_str(), precision, size);
    if (written < 0 || written >= static_cast<int>(sizeof digits)) {
        throw TemplateError("a format is too wide");
    }
    std::string text(digits, static_cast<std::size_t>(written));
    if (spec.type == '%') text += '%';
    return signed_number(std::signbit(value), std::move(text), spec);
}

[[noreturn]] void fail_type(char type, const Value& value) {
    throw TemplateError(fmt::format("the format '{}' is not for '{}'", type, type_name(value)));
}

bool is_one_of(char type, std::string_view types) {
    return type != '\0' && types.find(type) != std::string_view::npos;
}

// format(value, spec) of str.format().
Text format_by_spec(const Value& value, const Spec& spec, bool is_plain) {
    if (is_plain) return to_text(value);
    if (const Text* text = as_text(value)) {
        const bool for_text = (spec.type == '\0' || spec.type == 's') && spec.sign == '-' &&
                              !spec.commas && spec.align != '=';
        if (!for_text) fail_type(spec.type, value);
        Spec plain = spec;
        if (spec.zeros && spec.align == '\0') {
            plain.fill = "0";
            plain.align = '<';
        }
        return padded(cut(*text, spec), plain, '<');
    }
    if (is_one_of(spec.type, "eEfFgG%") && is_number(value)) {
        return format_real_as(real_of(value), spec);
    }
    if (is_integer(value)) {
        const bool known = spec.type == '\0' || is_one_of(spec.type, "dxXob");
        if (!known || spec.precision) fail_type(spec.type, value);
        return format_integer(integer_of(value), spec);
    }
    if (!is<double>(value) || spec.type != '\0') fail_type(spec.type, value);
    const double real = real_of(value);
    if (!spec.precision) {
        return signed_number(std::signbit(real), format_real(std::fabs(real)), spec);
    }
    Spec general = spec;
    general.type = 'g';
    return format_real_as(real, general);
}

// One conversion of "%".
Text format_by_percent(const Value& value, const Spec& spec) {
    const char type = spec.type;
    if (type == 's') return padded(cut(to_text(value), spec), spec, '>');
    if (type == 'r' || type == 'a') {
        Text made;
        append_repr(made, value);
        return padded(cut(made, spec), spec, '>');
    }
    if (is_one_of(type, "diu")) {
        if (!is_number(value)) fail_type(type, value);
        return format_integer(is<double>(value) ? truncated(real_of(value)) : integer_of(value),
                              spec);
    }
    if (is_one_of(type, "xXo") && is_integer(value)) {
        return format_integer(integer_of(value), spec);
    }
    if (is_one_of(type, "eEfFgG") && is_number(value)) return format_real_as(real_of(value), spec);
    if (type == 'c') {
        if (const Text* text = as_text(value); text && count_characters(text->bytes()) == 1) {
            return padded(*text, spec, '>');
        }
        const std::int64_t code_point = integer_of(value);
        if (code_point < 0 || code_point > 0x10FFFF) fail_type(type, value);
        std::string character;
        append_utf8(character, static_cast<char32_t>(code_point));
        return padded({character, Origin::from_template}, spec, '>');
    }
    fail_type(type, value);
}

// What stands between "%" and its value: "(key)", flags, width, precision, type.
struct PercentSpec {
    Spec spec;
    std::optional<std::string_view> key;
};

PercentSpec take_percent_spec(SpecReader& reader, std::string_view format) {
    PercentSpec made;
    if (reader.take('(')) {
        const std::size_t begin = reader.at();
        while (!reader.at_end() && reader.peek() != ')')
            reader.take();
        made.key = format.substr(begin, reader.at() - begin);
        if (!reader.take(')')) throw TemplateError("a format's key is not closed");
    }
    Spec& spec = made.spec;
    for (bool flag = true; flag;) {
        switch (reader.peek()) {
            case '-':
                spec.align = '<';
                break;
            case '+':
                spec.sign = '+';
                break;
            case ' ':
                if (spec.sign == '-') spec.sign = ' ';
                break;
            case '0':
                spec.zeros = true;
                break;
            case '#':
                spec.alternate = true;
                break;
            default:
                flag = false;
        }
        if (flag) reader.take();
    }
    spec.width = reader.take_number(width_max).value_or(0);
    if (reader.take('.')) spec.precision = reader.take_number(precision_max).value_or(0);
    if (reader.at_end()) throw TemplateError("a format ends in the middle");
    spec.type = reader.take();
    if (is_one_of(spec.type, "srac")) spec.zeros = false;
    return made;
}

// "name!r:spec", the inside of a pair of braces.
Text format_field(std::string_view field, const Arguments& arguments, std::size_t& next) {
    const std::size_t colon = field.find(':');
    const std::string_view spec =
        colon == std::string_view::npos ? std::string_view() : field.substr(colon + 1);
    std::string_view name = field.substr(0, colon);
    char conversion = '\0';
    if (name.size() >= 2 && name[name.size() - 2] == '!') {
        conversion = name.back();
        name.remove_suffix(2);
    }
    std::size_t at = arguments.positional.size();
    if (name.empty()) {
        at = next++;
    } else if (std::all_of(name.begin(), name.end(), is_digit) && name.size() < 4) {
        std::from_chars(name.data(), name.data() + name.size(), at);
    }
    Value value = required(arguments, at, name);
    Text converted;
    if (conversion == 'r') {
        append_repr(converted, value);
    } else if (conversion == 's') {
        converted = to_text(value);
    } else if (conversion != '\0') {
        throw TemplateError("format() knows the conversions !r and !s");
    }
    if (conversion != '\0') value = &converted;
    return format_by_spec(value, SpecReader(spec).take_format_spec(), spec.empty());
}

}  // namespace

Text format_percent(const Text& format, const Value& values) {
    const List* list = as_list(values);
    const bool is_tuple = list && list->is_tuple;
    const std::vector<Value> single = {values};
    const std::vector<Value>& given = is_tuple ? list->items : single;
    const std::string_view bytes = format.bytes();
    Text made;
    std::size_t next = 0;
    for (std::size_t i = 0; i < bytes.size();) {
        const std::size_t percent = std::min(bytes.find('%', i), bytes.size());
        made.append_part(format, i, percent - i);
        if (percent == bytes.size()) break;
        SpecReader reader(bytes.substr(percent + 1));
        const PercentSpec conversion = take_percent_spec(reader, bytes.substr(percent + 1));
        i = percent + 1 + reader.at();
        if (conversion.spec.type == '%') {
            made.append_part(format, i - 1, 1);
            continue;
        }
        const Dict* dict = as_dict(values);
        if (conversion.key) {
            const Value* item = dict ? dict->find(*conversion.key) : nullptr;
            if (!item) throw TemplateError("a format names a key that is not there");
            made.append(format_by_percent(*item, conversion.spec));
            continue;
        }
        if (next == given.size()) throw TemplateError("not enough values for a format");
        made.append(format_by_percent(given[next++], conversion.spec));
    }
    const bool may_be_left = !is_tuple && (list || as_dict(values));
    if (next < given.size() && !may_be_left) throw TemplateError("more values than a format takes");
    return made;
}

Text format_braces(const Text& format, const Arguments& arguments) {
    const std::string_view bytes = format.bytes();
    Text made;
    std::size_t next = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool brace = bytes[i] == '{' || bytes[i] == '}';
        if (!brace || (i + 1 < bytes.size() && bytes[i + 1] == bytes[i])) {
            made.append_part(format, i, 1);
            if (brace) ++i;
            continue;
        }
        const std::size_t end = bytes.find('}', i);
        if (bytes[i] == '}' || end == std::string_view::npos) {
            throw TemplateError("format() has a single brace");
        }
        made.append(format_field(bytes.substr(i + 1, end - i - 1), arguments, next));
        i = end;
    }
    return made;
}

}  // namespace troupe::model::jinja
