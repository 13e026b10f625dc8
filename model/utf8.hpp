// UTF-8 by the rules of the Unicode standard (table 3-7): which bytes may follow which, and where
// an ill-formed part ends ("maximal subpart", one U+FFFD each).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::model {

inline constexpr std::string_view replacement_character = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8Form {
    complete,    // a whole code point
    incomplete,  // valid so far, cut off by the end of the bytes
    ill_formed,  // a maximal subpart that nothing can complete
};

struct Utf8Unit {
    Utf8Form form = Utf8Form::ill_formed;
    std::size_t length = 0;   // bytes it takes, at least 1
    char32_t code_point = 0;  // of a complete unit only
};

// The first unit of `bytes`, which must not be empty.
[[nodiscard]] Utf8Unit next_utf8(std::string_view bytes);

[[nodiscard]] bool is_utf8(std::string_view bytes);

// Of ASCII, whatever the locale.
[[nodiscard]] inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// How many of the leading bytes are whole code points, or else how many are none.
[[nodiscard]] std::size_t utf8_run_length(std::string_view bytes, bool well_formed);

void append_utf8(std::string& out, char32_t code_point);

}  // namespace troupe::model
