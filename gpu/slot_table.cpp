#include "gpu/slot_table.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::gpu {

bool draws_on_host(const model::DecodingParams& params) {
    using Step = model::SamplerStep;
    const bool usual_order = params.samplers.empty() ||
                             std::equal(params.samplers.begin(), params.samplers.end(),
                                        std::array{Step::penalties, Step::temperature, Step::top_k,
                                                   Step::typical_p, Step::top_p, Step::min_p}
                                            .begin());
    return !usual_order || (params.typical_p < 1 && !params.greedy()) ||
           (params.logprobs && params.logprobs_mode == model::LogprobsMode::processed) ||
           params.logit_bias.size() > kBiasMax ||
           params.top_logprobs > static_cast<std::int32_t>(kTopLogprobsMax);
}

PageTableShape page_table_shape(std::uint32_t context_length, const model::AttentionWindow& window,
                                std::uint32_t step_tokens) {
    const std::uint32_t pages = (context_length + kPageTokens - 1) / kPageTokens;
    if (!window.bounded()) return {pages, 0};
    const PageTableShape shape{window.first_unread_page(),
                               (window.tokens + 2 * step_tokens) / kPageTokens + 4};
    return shape.width() < pages ? shape : PageTableShape{pages, 0};
}

SlotTable::SlotTable(std::uint32_t slots, std::uint32_t context_length, std::uint32_t pages_total,
                     const PageTableShape& shape)
    : pages_per_slot_((context_length + kPageTokens - 1) / kPageTokens),
      pages_total_(pages_total),
      shape_(shape),
      slots_(slots) {}

void SlotTable::apply(const model::StepPlan& plan, StepArrays& arrays) {
    for (const model::SlotId id : plan.closes)
        (*this)[id].open = false;
    for (const model::SlotOpen& open : plan.opens)
        open_slot(open, arrays);
    add_grants(plan, arrays);
    for (const model::PageCopy& copy : plan.copies)
        arrays.copies.push_back({copy.from, copy.to});
}

// The device writes all words of a step at once: a word that the step writes twice is written with
// the later page alone.
void SlotTable::add_grants(const model::StepPlan& plan, StepArrays& arrays) {
    for (const model::PageGrant& grant : plan.grants) {
        Slot& slot = (*this)[grant.slot];
        const bool behind = grant.page == model::kNoPage;
        TROUPE_ASSERT(behind || grant.page < pages_total_);
        TROUPE_ASSERT(slot.page_count < pages_per_slot_);
        const std::uint32_t word = shape_.word_of(slot.page_count++);
        if (!behind) arrays.grants.push_back({grant.slot, word, grant.page});
    }
    if (shape_.turning == 0) return;
    const auto place = [](const TableEntry& entry) { return std::pair(entry.slot, entry.word); };
    std::ranges::reverse(arrays.grants);
    std::ranges::stable_sort(arrays.grants, {}, place);
    const auto superseded = std::ranges::unique(arrays.grants, {}, place);
    arrays.grants.erase(superseded.begin(), superseded.end());
}

void SlotTable::open_slot(const model::SlotOpen& open, StepArrays& arrays) {
    TROUPE_ASSERT(open.slot < slots_.size() && !slots_[open.slot].open);
    Slot& slot = slots_[open.slot];
    slot = Slot{};
    slot.open = true;
    slot.opened = ++opened_;
    slot.settings = open;
    slot.on_host = draws_on_host(open.params);
    if (!open.params.penalised() || slot.on_host) return;
    arrays.cleared_counts.push_back(open.slot);
    for (std::size_t i = 0; i < open.history.size(); ++i)
        arrays.count_edits.push_back({open.slot, open.history[i], i < open.prompt_length ? 0 : 1});
}

bool SlotTable::feed(model::SlotId id, std::uint32_t position, model::TokenId token,
                     StepArrays& arrays) {
    Slot& slot = (*this)[id];
    if (!slot.settings.params.penalised() || position < slot.known_length()) return false;
    const std::size_t index = position - slot.known_length();
    TROUPE_ASSERT(index <= slot.fed.size(), "a token of the answer was left out");
    for (std::size_t i = index; i < slot.fed.size() && !slot.on_host; ++i) {
        TROUPE_ASSERT(slot.fed[i] != model::kDrawnToken, "a draft is judged before it is known");
        arrays.count_edits.push_back({id, slot.fed[i], -1});
    }
    slot.fed.resize(index);
    const bool known = token != model::kDrawnToken || slot.draws_pending == 0;
    slot.fed.push_back(known && token == model::kDrawnToken ? slot.drawn : token);
    return !slot.on_host;
}

void SlotTable::settle(model::SlotId id, std::uint64_t opened, model::TokenId drawn) {
    Slot& slot = slots_[id];
    if (slot.opened != opened) return;
    slot.drawn = drawn;
    --slot.draws_pending;
    // At most one gap: a step that feeds the next draw comes after this one was read.
    std::replace(slot.fed.begin(), slot.fed.end(), model::kDrawnToken, drawn);
}

model::TokenCounts SlotTable::counts_at(const Slot& slot, std::uint32_t position) {
    model::TokenCounts counts;
    if (!slot.settings.params.penalised()) return counts;
    for (std::size_t i = 0; i < slot.settings.history.size(); ++i) {
        const model::TokenId token = slot.settings.history[i];
        i < slot.settings.prompt_length ? counts.add_prompt(token) : counts.add_answer(token);
    }
    for (std::size_t i = 0; i < slot.fed.size() && slot.known_length() + i <= position; ++i)
        counts.add_answer(slot.fed[i]);
    return counts;
}

Slot& SlotTable::operator[](model::SlotId id) {
    TROUPE_ASSERT(id < slots_.size() && slots_[id].open);
    return slots_[id];
}

void SlotTable::reset() {
    for (Slot& slot : slots_)
        slot.open = false;
}

}  // namespace troupe::gpu
