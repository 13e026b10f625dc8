// Any bytes as a chat template, rendered with a small conversation: refused or rendered in bounds.
#include <cstddef>
#include <cstdint>

#include "tests/model/model_play.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    troupe::test::play_template({reinterpret_cast<const char*>(data), size});
    return 0;
}
