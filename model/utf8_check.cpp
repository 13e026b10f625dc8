// By simdjson, sixteen bytes and more at a time; apart from the rest, which does without it.
#include <simdjson.h>

#include "model/utf8.hpp"

namespace troupe::model {

bool is_utf8(std::string_view bytes) {
    return simdjson::validate_utf8(bytes.data(), bytes.size());
}

}  // namespace troupe::model
