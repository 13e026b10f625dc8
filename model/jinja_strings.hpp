// String operations that filters and methods share. All keep the marks of who wrote what; letters
// are those of ASCII: other characters stay as they are.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/jinja_value.hpp"

namespace troupe::model::jinja {

[[nodiscard]] bool is_space(char c);
[[nodiscard]] bool is_upper(char c);
[[nodiscard]] bool is_lower(char c);
[[nodiscard]] inline bool is_letter(char c) {
    return is_upper(c) || is_lower(c);
}

[[nodiscard]] Text upper(const Text& text);
[[nodiscard]] Text lower(const Text& text);
[[nodiscard]] Text title(const Text& text);       // each word's first letter upper, the rest lower
[[nodiscard]] Text capitalize(const Text& text);  // the first letter upper, the rest lower

// With HTML's entities, unless it is markup already; the result is markup.
[[nodiscard]] Text escape_html(const Text& text);

// Removes characters of `characters` (empty: whitespace) from the ends that are named.
[[nodiscard]] Text strip(const Text& text, std::string_view characters, bool left, bool right);

// At most `count` times where it is not negative.
[[nodiscard]] Text replace(const Text& text, std::string_view from, const Text& to,
                           std::int64_t count);

// At each `separator`, at most `splits` times where that is not negative.
[[nodiscard]] std::vector<Text> split(const Text& text, std::string_view separator,
                                      std::int64_t splits);
[[nodiscard]] std::vector<Text> split_right(const Text& text, std::string_view separator,
                                            std::int64_t splits);
// At runs of whitespace.
[[nodiscard]] std::vector<Text> split_blanks(const Text& text, std::int64_t splits);
[[nodiscard]] std::vector<Text> split_lines(const Text& text, bool keep_ends);

}  // namespace troupe::model::jinja
