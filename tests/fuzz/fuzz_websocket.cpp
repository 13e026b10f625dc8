// Any bytes as the messages of a WebSocket: refused or answered in well-formed JSON.
#include <cstddef>
#include <cstdint>

#include "tests/gateway/session_play.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    troupe::test::play_websocket({reinterpret_cast<const char*>(data), size});
    return 0;
}
