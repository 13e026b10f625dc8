// PromptLookup: guesses how a text goes on from where it has stood before, for speculative decoding
// (prompt lookup, Saxena 2023). An index over the prompt and the answer so far that grows by the
// token; a summary, a correction or an edit repeats long stretches of them. Pure; owned by whoever
// owns the text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/token.hpp"

namespace troupe::model {

class PromptLookup {
 public:
    // Fewer equal tokens in a row are no match.
    static constexpr std::uint32_t kMatchMin = 3;

    // Catches up with `tokens`: the text that the index knows already, and what came behind it. (Of
    // a shorter text it knows everything.) Amortised constant time and 8 to 16 bytes a token.
    void extend(std::span<const TokenId> tokens);

    // So many of the text's last tokens stand in it once more, at least; 0: no match. Longer
    // matches are the better guesses.
    [[nodiscard]] std::uint32_t match_length() const { return match_length_; }

    // Appends `count` tokens to `out`: those behind the match, which must be there. `tokens` is all
    // that the index knows. A match that reaches the end of the text goes on in what it proposes,
    // so that a loop is continued as a loop.
    void propose(std::span<const TokenId> tokens, std::uint32_t count,
                 std::vector<TokenId>& out) const;

 private:
    void append(std::span<const TokenId> tokens);
    void find_match(std::span<const TokenId> tokens, std::uint32_t latest);
    void grow(std::span<const TokenId> tokens);

    // Chains of places with equal hashes, as in zlib: a place is the length of the text behind its
    // kMatchMin tokens; 0 ends a chain.
    std::vector<std::uint32_t> latest_;    // by hash, a power of two in size
    std::vector<std::uint32_t> previous_;  // by place
    std::uint32_t match_ = 0;              // the text goes on as it did from this place
    std::uint32_t match_length_ = 0;
};

}  // namespace troupe::model
