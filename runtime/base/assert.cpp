#include "runtime/base/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace troupe {

void assertion_failed(const char* condition, const char* file, int line,
                      std::string_view message) noexcept {
    std::fprintf(stderr, "%s:%d: assertion failed: %s%s%.*s%s\n", file, line, condition,
                 message.empty() ? "" : " (", static_cast<int>(message.size()), message.data(),
                 message.empty() ? "" : ")");
    std::fflush(stderr);
    std::abort();
}

}  // namespace troupe
