// Any bytes as what a client posts to one of the routes: refused or answered in well-formed JSON.
#include <cstddef>
#include <cstdint>

#include "tests/gateway/session_play.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    troupe::test::play_http({reinterpret_cast<const char*>(data), size});
    return 0;
}
