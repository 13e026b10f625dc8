#include "model/toy_backend.hpp"

#include <algorithm>
#include <chrono>

#include "runtime/base/assert.hpp"

namespace troupe::model {

ToyBackend::ToyBackend(const ToyBackendOptions& options)
    : slots_(options.slots_max), pages_(options.pages_total) {
    info_.kind = "toy";
    info_.arithmetic = "table";
    info_.fingerprint = "toy-1";
    info_.vocabulary_size = static_cast<std::int32_t>(kToyWords.size());
    info_.context_length = options.context_length;
    info_.slots_max = options.slots_max;
    info_.pages_total = options.pages_total;
    info_.tokens_per_step_max = options.tokens_per_step_max;
    info_.kv_type = "tokens";
    info_.kv_bytes_per_token = sizeof(TokenId);
    info_.weight_bytes = kToyWords.size() * kToyWords.size() * sizeof(float);
}

void ToyBackend::submit(const StepPlan& plan) {
    TROUPE_ASSERT(outstanding_.size() < 2);
    TROUPE_ASSERT(plan.tokens.size() <= info_.tokens_per_step_max);
    outstanding_.push_back(&plan);
}

void ToyBackend::wait(StepResult& result) {
    TROUPE_ASSERT(!outstanding_.empty());
    const StepPlan& plan = *outstanding_.front();
    outstanding_.pop_front();
    const auto begin = std::chrono::steady_clock::now();
    result.clear();
    result.step = plan.step;
    apply_changes(plan);
    for (const SequenceStep& step : plan.sequences)
        run_sequence(plan, step, result);
    result.compute_ns = std::chrono::nanoseconds{std::chrono::steady_clock::now() - begin}.count();
}

void ToyBackend::reset() {
    for (Slot& slot : slots_)
        slot = Slot{};
    outstanding_.clear();
}

void ToyBackend::apply_changes(const StepPlan& plan) {
    for (const SlotId id : plan.closes)
        open_slot(id) = Slot{};
    for (const SlotOpen& open : plan.opens) {
        TROUPE_ASSERT(open.slot < slots_.size() && !slots_[open.slot].open);
        slots_[open.slot].open = true;
        slots_[open.slot].settings = open;
    }
    for (const PageGrant& grant : plan.grants) {
        TROUPE_ASSERT(grant.page < pages_.size());
        open_slot(grant.slot).pages.push_back(grant.page);
    }
    for (const PageCopy& copy : plan.copies) {
        TROUPE_ASSERT(copy.from < pages_.size() && copy.to < pages_.size());
        TROUPE_ASSERT(copy.tokens <= kPageTokens);
        std::copy_n(pages_[copy.from].begin(), copy.tokens, pages_[copy.to].begin());
    }
}

void ToyBackend::run_sequence(const StepPlan& plan, const SequenceStep& step, StepResult& result) {
    Slot& slot = open_slot(step.slot);
    TROUPE_ASSERT(step.position + step.token_count <= info_.context_length);
    TROUPE_ASSERT(step.target_count + step.sample_count <= step.token_count);
    SequenceResult row{.slot = step.slot,
                       .sampled_begin = static_cast<std::uint32_t>(result.sampled.size()),
                       .scored_begin = static_cast<std::uint32_t>(result.scored.size()),
                       .scored_count = step.target_count};
    for (std::uint32_t i = 0; i < step.token_count; ++i) {
        const TokenId planned = plan.tokens[step.token_begin + i];
        const std::uint32_t position = step.position + i;
        const TokenId token = planned == kDrawnToken ? slot.drawn : planned;
        token_at(slot, position) = token;
        ++tokens_computed_;
        if (i < step.target_count)
            score_target(slot, token, plan.targets[step.target_begin + i], result);
        const std::uint32_t left = step.token_count - i;
        if (left <= step.logits_count) {
            const auto scores = toy_scores(token);
            result.logits.insert(result.logits.end(), scores.begin(), scores.end());
        }
        if (left > step.sample_count || row.failed) continue;
        row.failed = !draw(slot, position, result);
        if (!row.failed) ++row.sampled_count;
    }
    result.sequences.push_back(row);
}

// The toy's scores are all finite, so that none of them can fail.
void ToyBackend::score_target(const Slot& slot, TokenId before, TokenId target,
                              StepResult& result) {
    const auto scored =
        score(toy_scores(before), target, slot.settings.params.top_shown(), scratch_, result.top);
    TROUPE_ASSERT(scored.has_value());
    result.scored.push_back(*scored);
}

// Draws what follows `position`; false where nothing may be drawn.
bool ToyBackend::draw(Slot& slot, std::uint32_t position, StepResult& result) {
    static constexpr std::array<TokenId, 1> kEnds{kToyEnd};
    const SlotOpen& settings = slot.settings;
    const std::uint32_t next = position + 1;
    if (settings.params.penalised()) count_tokens(slot, position);
    const SamplingContext context{
        .params = settings.params,
        .counts = &counts_,
        .end_tokens = kEnds,
        .answer_index = settings.answer_index,
        .answer_length = next - std::min(next, settings.prompt_length),
        .position = next,
    };
    const auto scores = toy_scores(token_at(slot, position));
    row_.assign(scores.begin(), scores.end());
    const auto drawn = sample(row_, context, scratch_, result.top);
    slot.drawn = drawn ? drawn->id : kToyEnd;  // a step already planned may ask for it
    if (drawn) result.sampled.push_back(*drawn);
    return drawn.has_value();
}

// What the penalties look at: all tokens up to `position`.
void ToyBackend::count_tokens(Slot& slot, std::uint32_t position) {
    counts_.clear();
    for (std::uint32_t i = 0; i <= position; ++i) {
        const TokenId token = token_at(slot, i);
        i < slot.settings.prompt_length ? counts_.add_prompt(token) : counts_.add_answer(token);
    }
}

ToyBackend::Slot& ToyBackend::open_slot(SlotId id) {
    TROUPE_ASSERT(id < slots_.size() && slots_[id].open);
    return slots_[id];
}

TokenId& ToyBackend::token_at(Slot& slot, std::uint32_t position) {
    TROUPE_ASSERT(position / kPageTokens < slot.pages.size());
    return pages_[slot.pages[position / kPageTokens]][position % kPageTokens];
}

}  // namespace troupe::model
