// SentencePiece's "precompiled_charsmap": strings of characters and what each becomes, in a
// double-array trie. At each place the longest one that is known is replaced.
// Format: https://github.com/google/sentencepiece/blob/master/src/normalizer.cc and
// https://github.com/s-yata/darts-clone/blob/master/include/darts.h (class DoubleArrayUnit).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe::model {

class CharacterMap {
 public:
    CharacterMap() = default;  // maps nothing

    // `bytes`: the trie's size in bytes (u32, little-endian), the trie, then the strings that it
    // points at, each ended by NUL. Errors: invalid_input for sizes that do not fit.
    [[nodiscard]] static Result<CharacterMap> make(std::string_view bytes);

    [[nodiscard]] std::string run(std::string_view text) const;

 private:
    struct Found {
        std::size_t length = 0;  // bytes of the text; 0: nothing is known here
        std::string_view becomes;
    };
    [[nodiscard]] Found longest_at(std::string_view text) const;

    std::vector<std::uint32_t> units_;
    std::string strings_;
};

}  // namespace troupe::model
