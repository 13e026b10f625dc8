// Any bytes as a config.json: refused or read, never a fault.
#include <cstddef>
#include <cstdint>

#include "tests/model/model_play.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    troupe::test::play_config_json({reinterpret_cast<const char*>(data), size});
    return 0;
}
