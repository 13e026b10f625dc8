// String operations that filters and methods share. All keep the marks of who wrote what.
// Characters are those of Unicode; ill-formed bytes stay as they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/jinja_value.hpp"
#include "model/utf8.hpp"

namespace troupe::model::jinja {

inline constexpr std::int64_t padding_max = 1 << 16;  // characters that one call adds

[[nodiscard]] bool is_space(char32_t c);
[[nodiscard]] bool is_letter(char32_t c);
[[nodiscard]] bool is_number(char32_t c);
// Letters that have another case.
[[nodiscard]] bool is_upper(char32_t c);
[[nodiscard]] bool is_lower(char32_t c);
[[nodiscard]] std::string text_of_character(char32_t c);

// Calls `visit` with each code point of `bytes`, with U+FFFD for what is ill-formed.
template <class Visit>
void for_each_character(std::string_view bytes, const Visit& visit) {
    while (!bytes.empty()) {
        const Utf8Unit unit = next_utf8(bytes);
        visit(unit.form == Utf8Form::complete ? unit.code_point : char32_t{0xFFFD});
        bytes.remove_prefix(unit.length);
    }
}

// Whether there is one, and all are of that kind.
using OfKind = bool (*)(char32_t);
[[nodiscard]] bool are_all(std::string_view bytes, OfKind of_kind);
// Whether some have a case, and all of those this one.
[[nodiscard]] bool have_case(std::string_view bytes, OfKind wanted);

[[nodiscard]] Text upper(const Text& text);
[[nodiscard]] Text lower(const Text& text);
[[nodiscard]] Text title(const Text& text);  // each word's first letter upper, the rest lower
[[nodiscard]] Text swap_case(const Text& text);
[[nodiscard]] Text capitalize(const Text& text);  // the first letter upper, the rest lower

// In the middle of `width` characters, padded with `fill`; at most 65,536 wide.
[[nodiscard]] Text center(const Text& text, std::int64_t width, const Text& fill);

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
[[nodiscard]] std::vector<Text> split_blanks_right(const Text& text, std::int64_t splits);
// At what ends a line for Python, form feeds and U+2028 among them.
[[nodiscard]] std::vector<Text> split_lines(const Text& text, bool keep_ends);

}  // namespace troupe::model::jinja
