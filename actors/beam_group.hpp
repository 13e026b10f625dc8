// A request that searches with beams, while it runs. The asker, the client's request, waits, is
// told and ends; its beams are requests of the scheduler's own, each with a slot and a lease. They
// begin as one, share pages wherever they agree, and take a step together: the next one waits for
// the rows of all. Owned by the Scheduler, engine thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "actors/prefix_cache.hpp"
#include "actors/request.hpp"
#include "model/beam_search.hpp"

namespace troupe::actors {

struct BeamGroup {
    // A beam that is still to be made: a copy of `source` but for its last token.
    struct Fork {
        std::uint32_t beam = 0;
        Request* source = nullptr;
        model::TokenId token = 0;
    };

    Request* asker;
    model::BeamSearch search;
    model::DecodingParams row_params;  // under which a backend gives a row's best tokens
    std::vector<Request*> beams{};     // the search's, in its order; null where a fork is to come
    std::vector<Fork> forks{};         // not yet asked for, or refused for want of pages
    std::vector<std::vector<model::TokenLogprob>> rows{};  // of beams, as far as they are here
    std::uint32_t rows_missing = 1;

    [[nodiscard]] std::uint32_t width() const {
        return static_cast<std::uint32_t>(asker->submit.params.beam_width);
    }
    // Slots that are kept for beams to come.
    [[nodiscard]] std::uint32_t reserved_slots() const {
        return width() - static_cast<std::uint32_t>(
                             std::ranges::count_if(beams, [](const Request* b) { return b; }));
    }
};

// Pages that `width` beams of `tokens` tokens each hold if they share the prompt's full pages only.
[[nodiscard]] constexpr std::uint64_t beam_pages(std::uint32_t width, std::uint32_t prompt_tokens,
                                                 std::uint32_t tokens) {
    const std::uint32_t shared = prompt_tokens / model::kPageTokens;
    return shared + std::uint64_t{width} * (pages_for(tokens) - shared);
}

// The most tokens, prompt included, for which that is within `pages_total`; 0: not even the prompt.
[[nodiscard]] constexpr std::uint32_t beam_tokens_max(std::uint32_t width,
                                                      std::uint32_t prompt_tokens,
                                                      std::uint32_t pages_total) {
    const std::uint32_t shared = prompt_tokens / model::kPageTokens;
    if (pages_total < shared) return 0;
    const std::uint64_t pages = shared + (pages_total - shared) / width;
    return static_cast<std::uint32_t>(pages * model::kPageTokens);
}

}  // namespace troupe::actors
