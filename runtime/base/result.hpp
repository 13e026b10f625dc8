// Result<T>: a value, or an Error that a person can act on. Used for everything that input, files,
// flags or the machine can cause; what only a bug can cause is an assertion.
#pragma once

#include <boost/system/result.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

// What kind of failure it is; the edges map it to an exit code, an HTTP status or a wire code.
enum class ErrorKind {
    invalid_input,  // a value the caller gave is wrong: flags, parameters, a malformed file
    not_found,      // a file, model or id that does not exist
    unsupported,    // understood, but not something this build can do
    out_of_memory,  // the machine or a pool has no room
    io,             // the operating system refused: ports, permissions, disks
    cancelled,      // stopped on purpose
    internal,       // a bug that was contained
};

// `message` is one sentence for people: what was wrong and, where there is one, what to do.
struct Error {
    ErrorKind kind = ErrorKind::internal;
    std::string message;

    friend bool operator==(const Error&, const Error&) = default;
};

[[nodiscard]] std::string_view to_string(ErrorKind kind);

// Called by Result::value() on an error; a program that asks for a value it does not have is wrong.
[[noreturn]] void throw_exception_from_error(const Error& error,
                                             const boost::source_location& where);

template <class T = void>
using Result = boost::system::result<T, Error>;

[[nodiscard]] inline Error invalid_input(std::string message) {
    return Error{ErrorKind::invalid_input, std::move(message)};
}

}  // namespace troupe
