// JSON in and out of template values.
#pragma once

#include <string_view>

#include "model/jinja_value.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model::jinja {

// That of Python's json.dumps(ensure_ascii=False); with an indent the item separator is ",".
struct JsonStyle {
    std::int64_t indent = -1;  // negative: all in one line
    bool sort_keys = false;
    bool ascii_only = false;  // others as \u escapes
    std::string item_separator = ", ";
    std::string key_separator = ": ";
};

// Throws TemplateError for values that JSON has no form for.
[[nodiscard]] Text to_json(const Value& value, const JsonStyle& style);

// All strings in it are marked as written by `origin`. Errors: invalid_input.
[[nodiscard]] Result<Value> from_json(Heap& heap, std::string_view json, Origin origin);

}  // namespace troupe::model::jinja
