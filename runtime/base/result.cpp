#include "runtime/base/result.hpp"

#include "runtime/base/assert.hpp"

namespace troupe {

std::string_view to_string(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::invalid_input:
            return "invalid_input";
        case ErrorKind::not_found:
            return "not_found";
        case ErrorKind::unsupported:
            return "unsupported";
        case ErrorKind::out_of_memory:
            return "out_of_memory";
        case ErrorKind::io:
            return "io";
        case ErrorKind::cancelled:
            return "cancelled";
        case ErrorKind::internal:
            return "internal";
    }
    return "internal";
}

void throw_exception_from_error(const Error& error, const boost::source_location& where) {
    assertion_failed("Result has a value", where.file_name(), static_cast<int>(where.line()),
                     error.message);
}

}  // namespace troupe
