#include "model/jinja_strings.hpp"

#include <algorithm>

#include "model/unicode.hpp"
#include "model/utf8.hpp"

namespace troupe::model::jinja {

namespace {

using AppendMapped = void (*)(std::string& out, char32_t code_point);

// Each character through the mapping that `choose(code point, byte position)` names.
template <class Choose>
Text changed(const Text& text, const Choose& choose) {
    Text made;
    std::string mapped;
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Unit unit = next_utf8(text.bytes().substr(at));
        if (unit.form == Utf8Form::complete) {
            mapped.clear();
            choose(unit.code_point, at)(mapped, unit.code_point);
            made.append(mapped, text.origin(at));
        } else {
            made.append_part(text, at, unit.length);
        }
        at += unit.length;
    }
    return made;
}

// The character that `bytes` begins or ends with; U+FFFD for an ill-formed one.
struct Character {
    char32_t code_point = 0xFFFD;
    std::size_t length = 1;
};

Character first_character(std::string_view bytes) {
    const Utf8Unit unit = next_utf8(bytes);
    if (unit.form != Utf8Form::complete) return {0xFFFD, unit.length};
    return {unit.code_point, unit.length};
}

Character last_character(std::string_view bytes) {
    std::size_t length = 1;
    while (length < std::min<std::size_t>(4, bytes.size()) &&
           (static_cast<unsigned char>(bytes[bytes.size() - length]) & 0xC0) == 0x80) {
        ++length;
    }
    const Character found = first_character(bytes.substr(bytes.size() - length));
    return found.length == length ? found : Character{};
}

}  // namespace

bool is_space(char32_t c) {
    return unicode_class(c) == UnicodeClass::space || (c >= 0x1C && c <= 0x1F);
}
bool is_letter(char32_t c) {
    return unicode_class(c) == UnicodeClass::letter;
}
bool is_number(char32_t c) {
    return unicode_class(c) == UnicodeClass::number;
}
bool is_upper(char32_t c) {
    std::string mapped;
    append_lower(mapped, c);
    return is_letter(c) && mapped != text_of_character(c);
}
bool is_lower(char32_t c) {
    std::string mapped;
    append_upper(mapped, c);
    return is_letter(c) && mapped != text_of_character(c);
}

std::string text_of_character(char32_t c) {
    std::string text;
    append_utf8(text, c);
    return text;
}

bool are_all(std::string_view bytes, OfKind of_kind) {
    bool all = !bytes.empty();
    for_each_character(bytes, [&](char32_t c) { all = all && of_kind(c); });
    return all;
}

bool have_case(std::string_view bytes, OfKind wanted) {
    bool some = false;
    bool all = true;
    for_each_character(bytes, [&](char32_t c) {
        const bool cased = is_upper(c) || is_lower(c);
        some = some || cased;
        all = all && (!cased || wanted(c));
    });
    return some && all;
}

Text upper(const Text& text) {
    return changed(text, [](char32_t, std::size_t) { return append_upper; });
}

Text lower(const Text& text) {
    return changed(text, [](char32_t, std::size_t) { return append_lower; });
}

Text title(const Text& text) {
    bool inside = false;
    return changed(text, [&inside](char32_t c, std::size_t) {
        const AppendMapped mapping = inside ? append_lower : append_upper;
        inside = is_letter(c);
        return mapping;
    });
}

Text swap_case(const Text& text) {
    return changed(
        text, [](char32_t c, std::size_t) { return is_lower(c) ? append_upper : append_lower; });
}

Text capitalize(const Text& text) {
    return changed(text,
                   [](char32_t, std::size_t at) { return at == 0 ? append_upper : append_lower; });
}

Text center(const Text& text, std::int64_t width, const Text& fill) {
    constexpr std::int64_t width_max = 1 << 16;
    if (width > width_max) throw TemplateError("a padding is too wide");
    const auto length = static_cast<std::int64_t>(count_characters(text.bytes()));
    const std::int64_t padding = std::max<std::int64_t>(width - length, 0);
    const std::int64_t left = padding / 2 + (padding & width & 1);  // as Python rounds
    Text made;
    for (std::int64_t i = 0; i < left; ++i)
        made.append(fill);
    made.append(text);
    for (std::int64_t i = left; i < padding; ++i)
        made.append(fill);
    return made;
}

Text escape_html(const Text& text) {
    if (text.is_markup()) return text;
    Text made;
    made.set_markup();
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto put = [&made](std::string_view entity) {
            made.append(entity, Origin::from_template);
        };
        switch (text.bytes()[i]) {
            case '&':
                put("&amp;");
                break;
            case '<':
                put("&lt;");
                break;
            case '>':
                put("&gt;");
                break;
            case '"':
                put("&#34;");
                break;
            case '\'':
                put("&#39;");
                break;
            default:
                made.append_part(text, i, 1);
        }
    }
    return made;
}

Text strip(const Text& text, std::string_view characters, bool left, bool right) {
    std::string_view rest = text.bytes();
    // Whole characters, so that no part of one that is in the set is taken.
    const auto strips = [characters](std::string_view one, char32_t code_point) {
        if (characters.empty()) return is_space(code_point);
        return characters.find(one) != std::string_view::npos;
    };
    while (left && !rest.empty()) {
        const Character first = first_character(rest);
        if (!strips(rest.substr(0, first.length), first.code_point)) break;
        rest.remove_prefix(first.length);
    }
    const auto begin = static_cast<std::size_t>(rest.data() - text.bytes().data());
    while (right && !rest.empty()) {
        const Character last = last_character(rest);
        if (!strips(rest.substr(rest.size() - last.length), last.code_point)) break;
        rest.remove_suffix(last.length);
    }
    return text.part(begin, rest.size());
}

Text replace(const Text& text, std::string_view from, const Text& to, std::int64_t count) {
    Text made;
    std::size_t done = 0;
    if (from.empty()) {
        // Between all characters, as Python does.
        const std::vector<std::size_t> offsets = character_offsets(text.bytes());
        for (std::size_t i = 0; i < offsets.size(); ++i) {
            if (count < 0 || static_cast<std::int64_t>(i) < count) made.append(to);
            if (i + 1 < offsets.size()) {
                made.append_part(text, offsets[i], offsets[i + 1] - offsets[i]);
            }
        }
        return made;
    }
    for (; count != 0; --count) {
        const std::size_t at = text.bytes().find(from, done);
        if (at == std::string_view::npos) break;
        made.append_part(text, done, at - done);
        made.append(to);
        done = at + from.size();
    }
    made.append_part(text, done, text.size() - done);
    return made;
}

std::vector<Text> split(const Text& text, std::string_view separator, std::int64_t splits) {
    if (separator.empty()) throw TemplateError("an empty separator");
    std::vector<Text> parts;
    std::size_t done = 0;
    for (; splits != 0; --splits) {
        const std::size_t at = text.bytes().find(separator, done);
        if (at == std::string_view::npos) break;
        parts.push_back(text.part(done, at - done));
        done = at + separator.size();
    }
    parts.push_back(text.part(done, text.size() - done));
    return parts;
}

std::vector<Text> split_right(const Text& text, std::string_view separator, std::int64_t splits) {
    if (separator.empty()) throw TemplateError("an empty separator");
    std::vector<Text> parts;
    std::size_t end = text.size();
    for (; splits != 0 && end >= separator.size(); --splits) {
        const std::size_t at = text.bytes().substr(0, end).rfind(separator);
        if (at == std::string_view::npos) break;
        parts.push_back(text.part(at + separator.size(), end - at - separator.size()));
        end = at;
    }
    parts.push_back(text.part(0, end));
    return {parts.rbegin(), parts.rend()};
}

std::vector<Text> split_blanks(const Text& text, std::int64_t splits) {
    std::vector<Text> parts;
    std::string_view rest = text.bytes();
    const auto skip = [&rest](bool blanks) {
        while (!rest.empty()) {
            const Character first = first_character(rest);
            if (is_space(first.code_point) != blanks) break;
            rest.remove_prefix(first.length);
        }
    };
    while (true) {
        skip(true);
        if (rest.empty()) return parts;
        const std::size_t begin = text.size() - rest.size();
        if (splits-- == 0) rest = {};
        skip(false);
        parts.push_back(text.part(begin, text.size() - rest.size() - begin));
    }
}

std::vector<Text> split_blanks_right(const Text& text, std::int64_t splits) {
    std::vector<Text> parts;
    std::string_view rest = text.bytes();
    const auto skip = [&rest](bool blanks) {
        while (!rest.empty()) {
            const Character last = last_character(rest);
            if (is_space(last.code_point) != blanks) break;
            rest.remove_suffix(last.length);
        }
    };
    while (true) {
        skip(true);
        if (rest.empty()) return {parts.rbegin(), parts.rend()};
        const std::size_t end = rest.size();
        if (splits-- == 0) rest = {};
        skip(false);
        parts.push_back(text.part(rest.size(), end - rest.size()));
    }
}

namespace {

// Of the line end that begins at `at`; 0 where none does.
std::size_t line_end_length(std::string_view bytes, std::size_t at) {
    const std::string_view rest = bytes.substr(at);
    if (rest.starts_with("\r\n")) return 2;
    const char c = rest[0];
    if ((c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E)) return 1;
    if (rest.starts_with("\xC2\x85")) return 2;
    return rest.starts_with("\xE2\x80\xA8") || rest.starts_with("\xE2\x80\xA9") ? 3 : 0;
}

}  // namespace

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
    const std::string_view bytes = text.bytes();
    std::vector<Text> lines;
    for (std::size_t at = 0; at < bytes.size();) {
        std::size_t end = at;
        while (end < bytes.size() && line_end_length(bytes, end) == 0)
            ++end;
        const std::size_t next = end < bytes.size() ? end + line_end_length(bytes, end) : end;
        lines.push_back(text.part(at, (keep_ends ? next : end) - at));
        at = next;
    }
    return lines;
}

}  // namespace troupe::model::jinja
