#include "tools/troupe/score_rows.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/assert.hpp"

namespace troupe::tools {
namespace {

// Bounds the scores that a step gives back: 25 MB with a vocabulary of 49,152.
constexpr std::uint32_t kSliceTokens = 128;

constexpr model::SlotId kSlot = 0;

Result<void> check_room(const model::BackendInfo& info, std::size_t tokens) {
    if (tokens > info.context_length)
        return invalid_input(fmt::format("{} tokens at once are too many: the context holds {}",
                                         tokens, info.context_length));
    const std::uint64_t cached = std::uint64_t{info.pages_total} * model::kPageTokens;
    if (tokens > cached)
        return Error{ErrorKind::out_of_memory,
                     fmt::format("the KV cache has no room for {} tokens, only for {}: give more "
                                 "with --kv-memory",
                                 tokens, cached)};
    return {};
}

void plan_open(model::StepPlan& plan, std::uint32_t tokens) {
    model::SlotOpen& open = plan.opens.emplace_back();
    open.slot = kSlot;
    open.prompt_length = tokens;
    for (model::PageId page = 0; page * model::kPageTokens < tokens; ++page)
        plan.grants.push_back({kSlot, page});
}

}  // namespace

Result<void> score_rows(model::Backend& backend, std::span<const model::TokenId> tokens,
                        std::uint32_t rows, const RowFunction& on_row) {
    TROUPE_ASSERT(rows >= 1 && rows <= tokens.size());
    const model::BackendInfo& info = backend.info();
    if (auto room = check_room(info, tokens.size()); !room) return room.error();
    const auto total = static_cast<std::uint32_t>(tokens.size());
    const auto vocabulary = static_cast<std::size_t>(info.vocabulary_size);
    const std::uint32_t first_row = total - rows;
    model::StepPlan plan;
    model::StepResult result;
    plan_open(plan, total);
    for (std::uint32_t position = 0; position < total;) {
        const std::uint32_t count =
            std::min({kSliceTokens, info.tokens_per_step_max, total - position});
        const std::uint32_t end = position + count;
        const std::uint32_t shown = end - std::clamp(first_row, position, end);
        plan.sequences.push_back({kSlot, position, 0, count, 0, shown});
        plan.tokens.assign(tokens.begin() + position, tokens.begin() + end);
        backend.submit(plan);
        backend.wait(result);
        for (std::uint32_t i = 0; i < shown; ++i)
            on_row(end - shown + i, std::span(result.logits).subspan(i * vocabulary, vocabulary));
        plan.clear();
        position = end;
    }
    plan.closes.push_back(kSlot);
    backend.submit(plan);
    backend.wait(result);
    return {};
}

}  // namespace troupe::tools
