// What tokenizers and templates need of Unicode: kinds of characters, case, normal forms. The
// tables are read once, when first used; afterwards everything is constant and safe from any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe::model {

enum class UnicodeClass : std::uint8_t {
    other,  // control, format, surrogate, private, unassigned: C*, less what is white space
    letter,
    nonspacing_mark,  // Mn
    mark,             // Mc, Me
    number,
    punctuation,
    symbol,
    space,  // the property White_Space, whatever the category
};

// Of a code point below 0x110000.
[[nodiscard]] UnicodeClass unicode_class(char32_t code_point);

// The full mapping without context: 'ß' is "SS" in upper case.
void append_lower(std::string& out, char32_t code_point);
void append_upper(std::string& out, char32_t code_point);

enum class NormalForm : std::uint8_t { nfd, nfc, nfkd, nfkc };

// https://www.unicode.org/reports/tr15/. Ill-formed bytes stay as they are, and nothing is composed
// or put in order across them. Linear in bytes, but for very long runs of combining marks, which
// are sorted.
[[nodiscard]] std::string normalize(std::string_view text, NormalForm form);

}  // namespace troupe::model
