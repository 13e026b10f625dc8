#include "model/jinja_strings.hpp"

namespace troupe::model::jinja {

namespace {

char to_upper(char c) {
    return is_lower(c) ? static_cast<char>(c - 'a' + 'A') : c;
}
char to_lower(char c) {
    return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
}

// Changes each byte by `change(byte, position)`.
template <class Change>
Text changed(const Text& text, const Change& change) {
    Text made;
    for (std::size_t i = 0; i < text.size(); ++i) {
        made.append_changed(text, i, change(text.bytes()[i], i));
    }
    return made;
}

}  // namespace

bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1C && c <= 0x1F);
}
bool is_upper(char c) {
    return c >= 'A' && c <= 'Z';
}
bool is_lower(char c) {
    return c >= 'a' && c <= 'z';
}

Text upper(const Text& text) {
    return changed(text, [](char c, std::size_t) { return to_upper(c); });
}

Text lower(const Text& text) {
    return changed(text, [](char c, std::size_t) { return to_lower(c); });
}

Text title(const Text& text) {
    bool inside = false;
    return changed(text, [&inside](char c, std::size_t) {
        const char made = inside ? to_lower(c) : to_upper(c);
        inside = is_letter(c) || static_cast<unsigned char>(c) >= 0x80;
        return made;
    });
}

Text capitalize(const Text& text) {
    return changed(text,
                   [](char c, std::size_t at) { return at == 0 ? to_upper(c) : to_lower(c); });
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
    const std::string_view bytes = text.bytes();
    // Whole characters, so that no part of one that is in the set is taken.
    const std::vector<std::size_t> offsets = character_offsets(bytes);
    const auto strips = [&](std::size_t i) {
        const std::string_view one = bytes.substr(offsets[i], offsets[i + 1] - offsets[i]);
        if (!characters.empty()) return characters.find(one) != std::string_view::npos;
        return (one.size() == 1 && is_space(one[0])) || one == "\xC2\xA0" || one == "\xE3\x80\x80";
    };
    std::size_t begin = 0;
    std::size_t end = offsets.size() - 1;
    while (left && begin < end && strips(begin))
        ++begin;
    while (right && end > begin && strips(end - 1))
        --end;
    return text.part(offsets[begin], offsets[end] - offsets[begin]);
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
    const std::string_view bytes = text.bytes();
    std::vector<Text> parts;
    std::size_t at = 0;
    while (true) {
        while (at < bytes.size() && is_space(bytes[at]))
            ++at;
        if (at == bytes.size()) return parts;
        if (splits-- == 0) break;
        std::size_t end = at;
        while (end < bytes.size() && !is_space(bytes[end]))
            ++end;
        parts.push_back(text.part(at, end - at));
        at = end;
    }
    parts.push_back(text.part(at, bytes.size() - at));
    return parts;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
    const std::string_view bytes = text.bytes();
    std::vector<Text> lines;
    for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t end = std::min(bytes.find_first_of("\r\n", at), bytes.size());
        std::size_t next = end;
        if (next < bytes.size()) next += bytes.substr(next).starts_with("\r\n") ? 2 : 1;
        lines.push_back(text.part(at, (keep_ends ? next : end) - at));
        at = next;
    }
    return lines;
}

}  // namespace troupe::model::jinja
