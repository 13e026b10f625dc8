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

struct AddedTokenRules {
    bool takes_left_blanks = false;   // white space before it belongs to it
    bool takes_right_blanks = false;  // and behind it
    bool single_word = false;         // not where letters, digits or "_" touch it
    bool in_normalized = false;       // looked for in text that has been normalised

    friend bool operator==(const AddedTokenRules&, const AddedTokenRules&) = default;
};

class AddedTokens {
 public:
    AddedTokens() = default;

    struct Entry {
        std::string_view spelling;  // not empty; must outlive the AddedTokens
        TokenId id = 0;
        AddedTokenRules rules = {};
    };

    explicit AddedTokens(std::vector<Entry> entries);

    [[nodiscard]] bool empty() const { return entries_.empty(); }

    [[nodiscard]] std::optional<ControlMatch> next(std::string_view text, std::size_t from) const;

 private:
    [[nodiscard]] static std::optional<ControlMatch> by_rules(const Entry& entry,
                                                              std::string_view text, std::size_t at,
                                                              std::size_t from);
    [[nodiscard]] const Entry* longest_at(std::string_view text) const;

    std::vector<Entry> entries_;  // sorted by spelling: a trie by binary search
    std::array<bool, 256> begins_{};
};

}  // namespace troupe::model
