// The Unicode tables as text: entries that end in ";", numbers in hexadecimal, "A-B" for a range.
// Read by unicode.cpp alone.
#pragma once

#include <string_view>

namespace troupe::model {

extern const std::string_view unicode_classes;            // range=letter of the class
extern const std::string_view unicode_combining_classes;  // range=class, in decimal
extern const std::string_view unicode_lower;              // code point=code points
extern const std::string_view unicode_upper;              // code point=code points
extern const std::string_view unicode_canonical;          // code point=code points
extern const std::string_view unicode_compositions;       // first second=code point
extern const std::string_view unicode_compatibility;      // code point=code points

}  // namespace troupe::model
