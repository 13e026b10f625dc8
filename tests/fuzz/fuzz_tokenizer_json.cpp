// Any bytes as a tokenizer.json: refused, or a tokenizer that takes any text.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer_hf.hpp"
#include "runtime/base/assert.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace troupe::model;
    const std::string_view json(reinterpret_cast<const char*>(data), size);
    const auto loaded = load_hf_tokenizer(json, "{}");
    if (!loaded) return 0;
    std::vector<TokenId> ids;
    loaded->tokenizer->encode(json.substr(0, 1000), ids);
    for (const TokenId id : ids)
        TROUPE_ASSERT(id >= 0 && id < loaded->tokenizer->vocabulary_size());
    return 0;
}
