// Takes large JSON texts apart without building anything: a parser needs up to fifteen times the
// length of what it is given. Only strings, braces, brackets and commas are looked at here; whether
// the pieces are JSON is for the parser to say that gets them. Values of one thread.
#pragma once

#include <simdjson.h>

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe::model {

// Goes through the members of an object, or the elements of an array.
class JsonPieces {
 public:
    enum class Next { piece, end, unfinished, malformed };

    // The container's text, which must outlive this; blanks may stand around it.
    explicit JsonPieces(std::string_view container);

    // piece: there is one more, `"name":value` or a value; end: there is none, and nothing follows
    // the container; unfinished: the text ends within a piece; malformed: it is no container.
    [[nodiscard]] Next next();
    [[nodiscard]] std::string_view piece() const { return piece_; }
    [[nodiscard]] bool is_object() const { return closing_ == '}'; }

 private:
    // Where the piece that begins at 0 is over; npos where it never is.
    [[nodiscard]] std::size_t piece_end() const;

    std::string_view rest_;  // from the bracket or comma on that stands before the next one
    std::string_view piece_;
    char closing_ = '\0';
    bool begins_ = true;
};

// How many pieces a container has, as far as it is one: what may be reserved for them.
[[nodiscard]] std::size_t count_pieces(std::string_view container);

// A container in parsed parts of some of its pieces each, which take little memory at a time.
class JsonParts {
 public:
    static constexpr std::size_t kPartBytesMax = 64U << 10;

    // `name` is what errors call the text; both must outlive this.
    JsonParts(std::string_view container, std::string_view name);

    // A container like the whole with the next pieces, valid until the next call; nullopt at the
    // end. Errors: invalid_input for what is no JSON, and for a piece of more than kPartBytesMax.
    [[nodiscard]] Result<std::optional<simdjson::dom::element>> next();

 private:
    [[nodiscard]] Result<> look_ahead();

    JsonPieces pieces_;
    std::string_view name_;
    std::optional<std::string_view> ahead_;  // the piece that begins the next part
    bool has_begun_ = false;
    std::string text_;
    simdjson::dom::parser parser_;
};

// Calls use(member) with each member of an object, or use(element) with each element of an array,
// parsed, as long as it succeeds; what is of the other kind is only checked. `name` is what errors
// call the text. Errors: those of JsonParts and of `use`.
template <class Container, class Use>
[[nodiscard]] Result<> each_in(std::string_view container, std::string_view name, Use use) {
    for (JsonParts parts(container, name);;) {
        const auto part = parts.next();
        if (!part) return part.error();
        if (!*part) return {};
        Container pieces;
        if ((*part)->get(pieces) != simdjson::SUCCESS) continue;
        for (const auto piece : pieces)
            if (Result<> used = use(piece); !used) return used;
    }
}
template <class Use>
[[nodiscard]] Result<> each_member(std::string_view object, std::string_view name, Use use) {
    return each_in<simdjson::dom::object>(object, name, use);
}
template <class Use>
[[nodiscard]] Result<> each_element(std::string_view array, std::string_view name, Use use) {
    return each_in<simdjson::dom::array>(array, name, use);
}

// An object's text without some members.
struct CutJson {
    std::string rest;                      // an object with all other members
    std::vector<std::string_view> values;  // of those, in the order of their names; empty: absent
};

// Cuts the members called `names` out of an object, the first of each name and only where they are
// objects or arrays: what is left is small, and may be given to a parser. `text` must outlive the
// result; `name` is what errors call it. Errors: invalid_input where it is no object, and where
// more than `rest_bytes_max` are left.
[[nodiscard]] Result<CutJson> cut_members(std::string_view text, std::string_view name,
                                          std::initializer_list<std::string_view> names,
                                          std::size_t rest_bytes_max);

}  // namespace troupe::model
