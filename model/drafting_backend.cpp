#include "model/drafting_backend.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::model {
namespace {

bool fills_page(std::uint32_t position) {
    return position % kPageTokens == kPageTokens - 1;
}

}  // namespace

DraftingBackend::DraftingBackend(std::unique_ptr<Backend> target, std::unique_ptr<Backend> draft)
    : target_(std::move(target)),
      draft_(std::move(draft)),
      info_(target_->info()),
      slots_(info_.slots_max) {
    const BackendInfo& own = draft_->info();
    TROUPE_ASSERT(own.vocabulary_size == info_.vocabulary_size);
    TROUPE_ASSERT(own.slots_max >= info_.slots_max && own.pages_total >= info_.pages_total);
    TROUPE_ASSERT(own.tokens_per_step_max >= info_.tokens_per_step_max + info_.slots_max);
    info_.context_length = std::min(info_.context_length, own.context_length);
    info_.kv_bytes_per_token += own.kv_bytes_per_token;
    info_.weight_bytes += own.weight_bytes;
    info_.drafts = true;
}

void DraftingBackend::submit(const StepPlan& plan) {
    TROUPE_ASSERT(outstanding_.size() < 2);
    outstanding_.push_back(&plan);
}

void DraftingBackend::wait(StepResult& result) {
    TROUPE_ASSERT(!outstanding_.empty());
    const StepPlan& plan = *outstanding_.front();
    outstanding_.pop_front();
    fill_in(plan);
    follow();
    std::int64_t draft_ns = 0;
    std::int64_t draft_sample_ns = 0;
    do {
        draft_->submit(draft_plan_);
        draft_->wait(draft_result_);
        draft_ns += draft_result_.compute_ns;
        draft_sample_ns += draft_result_.sample_ns;
        take_proposals();
    } while (!draft_plan_.sequences.empty());
    target_->submit(target_plan_);
    target_->wait(result);
    settle(plan, result);
    result.compute_ns += draft_ns;
    result.sample_ns += draft_sample_ns;
}

void DraftingBackend::reset() {
    target_->reset();
    draft_->reset();
    std::ranges::fill(slots_, Slot{});
    outstanding_.clear();
}

// The target's plan: what the slots drew is put in, what the draft model proposes is still to come.
void DraftingBackend::fill_in(const StepPlan& plan) {
    target_plan_ = plan;
    proposals_.clear();
    for (const SlotOpen& open : plan.opens)
        slots_[open.slot] = Slot{};
    for (std::size_t s = 0; s < plan.sequences.size(); ++s) {
        const SequenceStep& sequence = plan.sequences[s];
        const std::uint32_t end = sequence.token_begin + sequence.token_count;
        std::uint32_t at = sequence.token_begin;
        for (; at < end && target_plan_.tokens[at] != kDraftToken; ++at) {
            TokenId& token = target_plan_.tokens[at];
            if (token == kDrawnToken) token = slots_[sequence.slot].drawn;
        }
        if (at < end) proposals_.push_back({s, at, end});
    }
}

// The draft model's copy of the step, with one draw where tokens are to be proposed.
void DraftingBackend::follow() {
    draft_plan_.clear();
    draft_plan_.step = target_plan_.step;
    draft_plan_.trims = target_plan_.trims;
    draft_plan_.closes = target_plan_.closes;
    draft_plan_.opens = target_plan_.opens;
    for (SlotOpen& open : draft_plan_.opens)
        open.params.logprobs = false;
    draft_plan_.grants = target_plan_.grants;
    draft_plan_.copies = target_plan_.copies;
    for (const SequenceStep& sequence : target_plan_.sequences)
        follow_sequence(sequence);
}

void DraftingBackend::follow_sequence(const SequenceStep& sequence) {
    SequenceStep copy = sequence;
    copy.token_begin = static_cast<std::uint32_t>(draft_plan_.tokens.size());
    TokenId& missed = slots_[sequence.slot].missed;
    if (missed != kDrawnToken) {
        draft_plan_.tokens.push_back(std::exchange(missed, kDrawnToken));
        --copy.position;
    }
    const auto given =
        std::span(target_plan_.tokens).subspan(sequence.token_begin, sequence.token_count);
    const auto known = std::ranges::find(given, kDraftToken);
    draft_plan_.tokens.insert(draft_plan_.tokens.end(), given.begin(), known);
    copy.token_count = static_cast<std::uint32_t>(draft_plan_.tokens.size()) - copy.token_begin;
    copy.sample_count = known == given.end() ? 0 : 1;
    copy.logits_count = 0;
    copy.target_count = 0;
    draft_plan_.sequences.push_back(copy);
}

// Takes what the draft model has drawn, and plans its next round with it: another draw, or for the
// last proposal none. That one is fed with the slot's next step, unless it fills a page: somebody
// else may read a full page before that.
void DraftingBackend::take_proposals() {
    draft_plan_.clear();
    for (const SequenceResult& drawn : draft_result_.sequences) {
        const auto found = std::ranges::find_if(proposals_, [&](const Proposal& p) {
            return target_plan_.sequences[p.sequence].slot == drawn.slot;
        });
        if (found == proposals_.end()) continue;
        // A draft model that fails has any guess: it is only a guess.
        const TokenId token =
            drawn.sampled_count > 0 ? draft_result_.sampled[drawn.sampled_begin].id : 0;
        const SequenceStep& sequence = target_plan_.sequences[found->sequence];
        const std::uint32_t position = sequence.position + found->next - sequence.token_begin;
        target_plan_.tokens[found->next++] = token;
        const bool last = found->next == found->end;
        if (last && !fills_page(position)) continue;
        draft_plan_.sequences.push_back(
            {.slot = drawn.slot,
             .position = position,
             .token_begin = static_cast<std::uint32_t>(draft_plan_.tokens.size()),
             .token_count = 1,
             .sample_count = last ? 0u : 1u});
        draft_plan_.tokens.push_back(token);
    }
    std::erase_if(proposals_, [](const Proposal& p) { return p.next == p.end; });
}

// Cuts the draws behind the first proposal that was wrong, and remembers what the next step needs.
void DraftingBackend::settle(const StepPlan& plan, StepResult& result) {
    for (std::size_t s = 0; s < plan.sequences.size(); ++s) {
        const SequenceStep& sequence = plan.sequences[s];
        SequenceResult& drawn = result.sequences[s];
        Slot& slot = slots_[sequence.slot];
        const std::uint32_t last = sequence.token_begin + sequence.token_count - 1;
        if (plan.tokens[last] == kDraftToken) {
            const std::uint32_t rows = rows_that_count(target_plan_, sequence, result, drawn);
            drawn.failed = rows > drawn.sampled_count;
            drawn.sampled_count = std::min(rows, drawn.sampled_count);
            const std::uint32_t position = sequence.position + sequence.token_count - 1;
            if (rows == sequence.sample_count && !fills_page(position)) {
                slot.missed = target_plan_.tokens[last];
            }
        }
        if (drawn.sampled_count > 0) {
            slot.drawn = result.sampled[drawn.sampled_begin + drawn.sampled_count - 1].id;
        }
    }
}

}  // namespace troupe::model
