// What a token looks back at: everything, or a window of the last tokens and the sinks, which are
// the first ones of the sequence (Xiao et al., "Efficient Streaming Language Models with Attention
// Sinks", 2023). Plain values; the exact rules stand in docs/decoding.md, "The window".
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/step.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

struct AttentionWindow {
    std::uint32_t tokens = 0;  // the last so many, the query's own included; 0: all
    std::uint32_t sinks = 0;   // beside them the first so many; 0 where there is no window

    [[nodiscard]] bool bounded() const { return tokens > 0; }

    // Where the query at `position` is rotated to look at the sinks: they stay where they would be
    // in a cache that holds nothing but them and the window.
    [[nodiscard]] std::uint32_t position_for_sinks(std::uint32_t position) const {
        return bounded() ? std::min(position, tokens + sinks - 1) : position;
    }

    // Entries [first_unread_page(), unread_end(p)) of the page table are not read any more by
    // queries at p and after.
    [[nodiscard]] std::uint32_t first_unread_page() const {
        return (sinks + kPageTokens - 1) / kPageTokens;
    }
    [[nodiscard]] std::uint32_t unread_end(std::uint32_t position) const {
        if (!bounded() || position < tokens) return first_unread_page();
        return std::max((position + 1 - tokens) / kPageTokens, first_unread_page());
    }

    // The most pages that a sequence needs whose steps carry at most `step_tokens` tokens.
    [[nodiscard]] std::uint32_t pages_max(std::uint32_t step_tokens) const {
        return first_unread_page() + (tokens + step_tokens) / kPageTokens + 2;
    }

    friend bool operator==(const AttentionWindow&, const AttentionWindow&) = default;
};

// Sinks and window have to stand at positions that the model knows. Error: they are more than the
// `trained` ones.
[[nodiscard]] Result<> check_window(const AttentionWindow& window, std::uint32_t trained);

}  // namespace troupe::model
