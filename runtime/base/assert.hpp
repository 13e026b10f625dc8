// Assertions that stay on in every build. They state what the program itself guarantees; nothing a
// person can send or configure may reach one (that is a Result). A failure prints the condition,
// the place and a message, then aborts: a wrong answer is worse than a restart.
#pragma once

#include <string_view>

namespace troupe {

// Prints "file:line: assertion failed: condition (message)" to stderr and aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line,
                                   std::string_view message = {}) noexcept;

}  // namespace troupe

#define TROUPE_ASSERT(condition, ...)                                                              \
    do {                                                                                           \
        if (!(condition)) [[unlikely]]                                                             \
            ::troupe::assertion_failed(#condition, __FILE__, __LINE__ __VA_OPT__(, ) __VA_ARGS__); \
    } while (false)
