#include "model/added_tokens.hpp"

#include <algorithm>

#include "runtime/base/assert.hpp"

namespace troupe::model {

AddedTokens::AddedTokens(std::vector<Entry> entries) : entries_(std::move(entries)) {
    std::stable_sort(entries_.begin(), entries_.end(),
                     [](const Entry& a, const Entry& b) { return a.spelling < b.spelling; });
    for (const Entry& entry : entries_) {
        TROUPE_ASSERT(!entry.spelling.empty());
        begins_[static_cast<unsigned char>(entry.spelling[0])] = true;
    }
}

std::optional<ControlMatch> AddedTokens::next(std::string_view text, std::size_t from) const {
    for (std::size_t at = from; at < text.size(); ++at) {
        if (!begins_[static_cast<unsigned char>(text[at])]) continue;
        if (const Entry* found = longest_at(text.substr(at))) {
            return ControlMatch{at, at + found->spelling.size(), found->id};
        }
    }
    return std::nullopt;
}

const AddedTokens::Entry* AddedTokens::longest_at(std::string_view text) const {
    const Entry* longest = nullptr;
    auto low = entries_.begin();
    auto high = entries_.end();
    for (std::size_t depth = 0; depth < text.size(); ++depth) {
        // Within [low, high) all spellings share text[0, depth); a shorter one sorts first and has
        // been taken, so every other one has a byte at `depth`.
        const auto byte_at = [depth](const Entry& entry) {
            return static_cast<unsigned char>(entry.spelling[depth]);
        };
        const auto byte = static_cast<unsigned char>(text[depth]);
        low = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e) < byte; });
        high = std::partition_point(low, high, [&](const Entry& e) { return byte_at(e) == byte; });
        if (low == high) break;
        if (low->spelling.size() == depth + 1) longest = &*low;
        while (low != high && low->spelling.size() == depth + 1)
            ++low;
    }
    return longest;
}

}  // namespace troupe::model
