// Python's "%" and str.format(): values made text by a format. What values bring keeps the marks of
// who wrote it. Formats that are not known, and values of the wrong kind, throw TemplateError.
#pragma once

#include "model/jinja_value.hpp"

namespace troupe::model::jinja {

// format % values: a tuple's items, or the one value.
[[nodiscard]] Text format_percent(const Text& format, const Value& values);

// format.format(arguments): "{}", "{0}", "{name}", "{:>8}", "{!r}"; no attributes of arguments.
[[nodiscard]] Text format_braces(const Text& format, const Arguments& arguments);

}  // namespace troupe::model::jinja
