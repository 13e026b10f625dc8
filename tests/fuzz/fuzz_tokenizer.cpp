// Any bytes as text for a small byte-level vocabulary: every byte that has a token comes back.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/byte_level.hpp"
#include "model/tokenizer_data.hpp"
#include "runtime/base/assert.hpp"

namespace {

using namespace troupe::model;

// One token a byte and two merges, with GPT-2's pre-tokenizer.
std::unique_ptr<const Tokenizer> make_small_tokenizer() {
    static std::array<std::string, 256> pieces;
    TokenizerData data;
    data.model = "gpt2";
    data.pre = "gpt-2";
    for (int byte = 0; byte < 256; ++byte) {
        auto& piece = pieces[static_cast<std::size_t>(byte)];
        append_byte_spelling(piece, static_cast<unsigned char>(byte));
        data.tokens.push_back(piece);
    }
    data.tokens.insert(data.tokens.end(), {"ab", "abc"});
    data.merges = {"a b", "ab c"};
    auto made = make_tokenizer(std::move(data));
    TROUPE_ASSERT(made);
    return std::move(*made);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const auto tokenizer = make_small_tokenizer();
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    std::vector<TokenId> ids;
    tokenizer->encode(text, ids);
    std::string back;
    for (const TokenId id : ids)
        back += tokenizer->bytes_of(id);
    TROUPE_ASSERT(back == text);
    return 0;
}
