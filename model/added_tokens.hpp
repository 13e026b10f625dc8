// Tokens that are found in text by their spelling, before any other splitting: the longest one at
// the first place where one begins. Time is O(longest spelling * log(count)) per byte of text.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "model/tokenizer.hpp"

namespace troupe::model {

class AddedTokens {
 public:
    AddedTokens() = default;

    struct Entry {
        std::string_view spelling;  // not empty; must outlive the AddedTokens
        TokenId id = 0;
    };

    explicit AddedTokens(std::vector<Entry> entries);

    [[nodiscard]] bool empty() const { return entries_.empty(); }

    [[nodiscard]] std::optional<ControlMatch> next(std::string_view text, std::size_t from) const;

 private:
    [[nodiscard]] const Entry* longest_at(std::string_view text) const;

    std::vector<Entry> entries_;  // sorted by spelling: a trie by binary search
    std::array<bool, 256> begins_{};
};

}  // namespace troupe::model
