#include "cpu/slot_table.hpp"

#include <algorithm>

#include "runtime/base/assert.hpp"

namespace troupe::cpu {

SlotTable::SlotTable(std::uint32_t slots, std::uint32_t context_length, std::uint32_t pages_total)
    : pages_per_slot_((context_length + model::kPageTokens - 1) / model::kPageTokens),
      pages_total_(pages_total),
      slots_(slots) {
    for (Slot& slot : slots_)
        slot.pages.reserve(std::min(pages_per_slot_, pages_total_));
}

void SlotTable::apply(const model::StepPlan& plan) {
    for (const model::PageTrim& trim : plan.trims) {
        std::vector<model::PageId>& pages = (*this)[trim.slot].pages;
        TROUPE_ASSERT(trim.begin <= trim.end && trim.end <= pages.size());
        std::fill(pages.begin() + trim.begin, pages.begin() + trim.end, model::kNoPage);
    }
    for (const model::SlotId id : plan.closes)
        (*this)[id].open = false;
    for (const model::SlotOpen& open : plan.opens) {
        TROUPE_ASSERT(open.slot < slots_.size() && !slots_[open.slot].open);
        Slot& slot = slots_[open.slot];
        slot.open = true;
        slot.pages.clear();
        slot.settings = open;
        slot.drawn = 0;
        slot.history.open(slot.settings);
    }
    for (const model::PageGrant& grant : plan.grants) {
        Slot& slot = (*this)[grant.slot];
        TROUPE_ASSERT(grant.page < pages_total_ || grant.page == model::kNoPage);
        TROUPE_ASSERT(slot.pages.size() < pages_per_slot_);
        slot.pages.push_back(grant.page);
    }
}

Slot& SlotTable::operator[](model::SlotId id) {
    TROUPE_ASSERT(id < slots_.size() && slots_[id].open);
    return slots_[id];
}

void SlotTable::reset() {
    for (Slot& slot : slots_)
        slot.open = false;
}

}  // namespace troupe::cpu
