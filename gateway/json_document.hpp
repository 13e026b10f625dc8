// Reading JSON from strangers: one text becomes a tree or a clear refusal. Thin over simdjson,
// adding what a wire needs: a depth limit that also holds in ignored fields, one meaning for
// duplicate keys (the last wins), null as absent, and errors that name the field, its value and
// what it should be. Any thread; a document is used by one.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "actors/session_events.hpp"

namespace troupe::gateway {

using JsonElement = simdjson::dom::element;

template <class T = void>
using WireResult = boost::system::result<T, actors::RequestError>;

// 400 invalid_parameter; `param` is the field at fault.
[[nodiscard]] actors::RequestError invalid_parameter(std::string_view param, std::string message);

// The same for something that is understood but not offered.
[[nodiscard]] actors::RequestError unsupported(std::string_view param, std::string message);

// Whether it may stand in JSON.
[[nodiscard]] inline bool is_utf8(std::string_view text) {
    return simdjson::validate_utf8(text);
}

// Parses `text` and calls `read` with its root; the tree lives only inside the call. Refused with
// 400 invalid_json: malformed text, invalid UTF-8, lone surrogates, numbers out of range, arrays
// and objects nested deeper than `depth_max`.
[[nodiscard]] WireResult<> with_json(
    std::string_view text, std::size_t depth_max,
    const std::function<WireResult<>(const JsonElement& root)>& read);

// As JSON text again, without white space; at most `bytes_max` bytes with "..." after, for
// messages.
[[nodiscard]] std::string excerpt(const JsonElement& element, std::size_t bytes_max = 60);

// An object's fields by name. All readers: an absent or null field gives nothing (and success); a
// wrong type or a value outside [least, most] gives an error naming field, value and range.
class JsonFields {
 public:
    // `path` stands before the names in errors: "" or "input[2].".
    explicit JsonFields(simdjson::dom::object object, std::string path = {})
        : object_(object), path_(std::move(path)) {}

    // 400 unless `element` is an object.
    [[nodiscard]] static WireResult<JsonFields> of(const JsonElement& element,
                                                   std::string_view what);

    // The last field of that name; nothing where it is absent or null.
    [[nodiscard]] std::optional<JsonElement> find(std::string_view name) const;
    [[nodiscard]] bool has(std::string_view name) const { return find(name).has_value(); }

    [[nodiscard]] WireResult<std::optional<std::string>> string(std::string_view name) const;
    [[nodiscard]] WireResult<std::optional<bool>> boolean(std::string_view name) const;
    [[nodiscard]] WireResult<std::optional<double>> number(std::string_view name, double least,
                                                           double most) const;
    // Integers only: 10.0 is not one. Larger than `most` is refused.
    [[nodiscard]] WireResult<std::optional<std::int64_t>> integer(std::string_view name,
                                                                  std::int64_t least,
                                                                  std::int64_t most) const;

    [[nodiscard]] std::string full_name(std::string_view name) const {
        return path_ + std::string(name);
    }

 private:
    simdjson::dom::object object_;
    std::string path_;
};

// For a chain of reads: `if (auto r = ...; !r) return r.error();` in one word.
#define TROUPE_TRY_ASSIGN(target, expression)             \
    do {                                                  \
        auto troupe_result = (expression);                \
        if (!troupe_result) return troupe_result.error(); \
        (target) = std::move(*troupe_result);             \
    } while (false)

}  // namespace troupe::gateway
