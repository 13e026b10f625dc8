#include "model/added_tokens.hpp"

#include <algorithm>

#include "model/unicode.hpp"
#include "model/utf8.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::model {

namespace {

struct Character {
    char32_t code_point = 0xFFFD;  // that of an ill-formed one
    std::size_t length = 1;        // bytes
};

Character first_character(std::string_view text) {
    const Utf8Unit unit = next_utf8(text);
    return {unit.form == Utf8Form::complete ? unit.code_point : char32_t{0xFFFD}, unit.length};
}

Character last_character(std::string_view text) {
    for (std::size_t length = 1; length <= std::min<std::size_t>(4, text.size()); ++length) {
        const Character found = first_character(text.substr(text.size() - length));
        if (found.length == length && found.code_point != 0xFFFD) return found;
    }
    return {};
}

bool is_blank(const Character& character) {
    return unicode_class(character.code_point) == UnicodeClass::space;
}

bool is_word(const Character& character) {
    const UnicodeClass of = unicode_class(character.code_point);
    return of == UnicodeClass::letter || of == UnicodeClass::number || of == UnicodeClass::mark ||
           of == UnicodeClass::nonspacing_mark || character.code_point == '_';
}

}  // namespace

AddedTokens::AddedTokens(std::vector<Entry> entries) : entries_(std::move(entries)) {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.spelling < b.spelling; });
    for (const Entry& entry : entries_) {
        TROUPE_ASSERT(!entry.spelling.empty());
        begins_[static_cast<unsigned char>(entry.spelling[0])] = true;
    }
}

std::optional<ControlMatch> AddedTokens::next(std::string_view text, std::size_t from) const {
    for (std::size_t at = from; at < text.size(); ++at) {
        if (!begins_[static_cast<unsigned char>(text[at])]) continue;
        const Entry* found = longest_at(text.substr(at));
        if (found == nullptr) continue;
        if (found->rules == AddedTokenRules{}) {
            return ControlMatch{at, at + found->spelling.size(), found->id};
        }
        if (const auto match = by_rules(*found, text, at, from)) return match;
    }
    return std::nullopt;
}

std::optional<ControlMatch> AddedTokens::by_rules(const Entry& entry, std::string_view text,
                                                  std::size_t at, std::size_t from) {
    std::size_t end = at + entry.spelling.size();
    if (entry.rules.single_word) {
        const std::string_view before = text.substr(from, at - from);
        const bool touched = (!before.empty() && is_word(last_character(before))) ||
                             (end < text.size() && is_word(first_character(text.substr(end))));
        if (touched) return std::nullopt;
    }
    while (entry.rules.takes_left_blanks && at > from) {
        const std::string_view before = text.substr(from, at - from);
        const Character last = last_character(before);
        if (!is_blank(last)) break;
        at -= last.length;
    }
    while (entry.rules.takes_right_blanks && end < text.size()) {
        const Character first = first_character(text.substr(end));
        if (!is_blank(first)) break;
        end += first.length;
    }
    return ControlMatch{at, end, entry.id};
}

const AddedTokens::Entry* AddedTokens::longest_at(std::string_view text) const {
    const Entry* longest = nullptr;
    auto low = entries_.begin();
    auto high = entries_.end();
    for (std::size_t depth = 0; depth < text.size(); ++depth) {
        // Within [low, high) all spellings share text[0, depth); a shorter one sorts first and has
        // been taken, so every other one has a byte at `depth`.
        const auto byte_at = [depth](const Entry& entry) {
            return static_cast<unsigned char>(entry.spelling[depth]);
        };
        const auto byte = static_cast<unsigned char>(text[depth]);
        low = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e) < byte; });
        high = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e) == byte; });
        if (low == high) break;
        if (low->spelling.size() == depth + 1) longest = &*low;
        while (low != high && low->spelling.size() == depth + 1)
            ++low;
    }
    return longest;
}

}  // namespace troupe::model
