// Any bytes as a tokenizer.json: refused, or a tokenizer that takes any text.
#include <cstddef>
#include <cstdint>

#include "tests/model/model_play.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    troupe::test::play_tokenizer_json({reinterpret_cast<const char*>(data), size});
    return 0;
}
