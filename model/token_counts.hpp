// Which tokens a sequence holds, for its penalties: each distinct token once, and how often the
// answer has it. Owned by whoever owns the sequence; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "model/token.hpp"

namespace troupe::model {

class TokenCounts {
 public:
    struct Entry {
        TokenId id = 0;
        std::uint32_t answer_count = 0;  // 0: only in the prompt
    };

    void clear() {
        entries_.clear();
        index_by_id_.clear();
        prompt_entries_ = 0;
    }
    // The prompt's tokens come before the answer's.
    void add_prompt(TokenId id) {
        (void)entry(id);
        prompt_entries_ = entries_.size();
    }
    void add_answer(TokenId id) { ++entry(id).answer_count; }

    // Takes back the last token that was added to the answer and not yet taken back.
    void remove_answer(TokenId id) {
        const auto it = index_by_id_.find(id);
        if (--entries_[it->second].answer_count > 0 || it->second < prompt_entries_) return;
        entries_.pop_back();  // it was the first of its kind, so nothing was entered behind it
        index_by_id_.erase(it);
    }

    // In the order in which the tokens first occurred.
    [[nodiscard]] std::span<const Entry> entries() const { return entries_; }

    // Null where the sequence does not hold the token.
    [[nodiscard]] const Entry* find(TokenId id) const {
        const auto it = index_by_id_.find(id);
        return it == index_by_id_.end() ? nullptr : &entries_[it->second];
    }

 private:
    Entry& entry(TokenId id) {
        const auto [it, added] =
            index_by_id_.try_emplace(id, static_cast<std::uint32_t>(entries_.size()));
        if (added) entries_.push_back({id, 0});
        return entries_[it->second];
    }

    std::vector<Entry> entries_;
    std::size_t prompt_entries_ = 0;  // the first of them are the prompt's
    std::unordered_map<TokenId, std::uint32_t> index_by_id_;
};

}  // namespace troupe::model
