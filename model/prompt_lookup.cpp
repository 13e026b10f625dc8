#include "model/prompt_lookup.hpp"

#include <algorithm>

#include "runtime/base/assert.hpp"

namespace troupe::model {
namespace {

constexpr std::size_t kSlotsMin = 256;
constexpr std::uint32_t kCandidatesMax = 8;  // places that are compared, the latest first
constexpr std::uint32_t kComparedMax = 32;   // tokens of each

// Of the kMatchMin tokens in front of `place`.
std::size_t slot_of(std::span<const TokenId> tokens, std::uint32_t place, std::size_t slots) {
    std::uint64_t hash = 0;
    for (std::uint32_t i = place - PromptLookup::kMatchMin; i < place; ++i) {
        hash = (hash + static_cast<std::uint32_t>(tokens[i])) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return hash & (slots - 1);
}

// Tokens in front of `place` that also stand at the end of the text.
std::uint32_t common_length(std::span<const TokenId> tokens, std::uint32_t place) {
    const auto end = static_cast<std::uint32_t>(tokens.size());
    const std::uint32_t most = std::min(place, kComparedMax);
    std::uint32_t length = 0;
    while (length < most && tokens[place - 1 - length] == tokens[end - 1 - length])
        ++length;
    return length;
}

}  // namespace

void PromptLookup::extend(std::span<const TokenId> tokens) {
    if (previous_.empty()) previous_.push_back(0);  // the empty text
    while (previous_.size() <= tokens.size())
        append(tokens.first(previous_.size()));
}

// The text has grown by its last token.
void PromptLookup::append(std::span<const TokenId> tokens) {
    const auto end = static_cast<std::uint32_t>(tokens.size());
    if (match_length_ > 0) {
        const bool goes_on = tokens[match_] == tokens.back();
        match_ = goes_on ? match_ + 1 : 0;
        match_length_ = goes_on ? match_length_ + 1 : 0;
    }
    previous_.push_back(0);
    if (end < kMatchMin) return;
    if (end > latest_.size()) grow(tokens);
    std::uint32_t& latest = latest_[slot_of(tokens, end, latest_.size())];
    if (match_length_ == 0) find_match(tokens, latest);
    previous_[end] = latest;
    latest = end;
}

// The longest of some places, the latest of several: it stays the longest while it goes on.
void PromptLookup::find_match(std::span<const TokenId> tokens, std::uint32_t latest) {
    std::uint32_t place = latest;
    for (std::uint32_t i = 0; i < kCandidatesMax && place != 0; ++i, place = previous_[place]) {
        const std::uint32_t length = common_length(tokens, place);
        if (length < kMatchMin || length <= match_length_) continue;
        match_ = place;
        match_length_ = length;
    }
}

// Twice the slots; every place but the last is entered anew.
void PromptLookup::grow(std::span<const TokenId> tokens) {
    latest_.assign(std::max(kSlotsMin, latest_.size() * 2), 0);
    for (auto place = kMatchMin; place < tokens.size(); ++place) {
        std::uint32_t& latest = latest_[slot_of(tokens, place, latest_.size())];
        previous_[place] = latest;
        latest = place;
    }
}

void PromptLookup::propose(std::span<const TokenId> tokens, std::uint32_t count,
                           std::vector<TokenId>& out) const {
    TROUPE_ASSERT(match_length_ > 0 && tokens.size() + 1 == previous_.size());
    const std::size_t first = out.size();
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t source = match_ + i;
        out.push_back(source < tokens.size() ? tokens[source]
                                             : out[first + source - tokens.size()]);
    }
}

}  // namespace troupe::model
