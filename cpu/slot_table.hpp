// The slots of the CPU backend: each running sequence's page table, parameters and last draw.
// Belongs to the executor's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/slot_history.hpp"
#include "model/step.hpp"

namespace troupe::cpu {

struct Slot {
    bool open = false;
    std::vector<model::PageId> pages;  // entry i: positions [16 i, 16 i + 16), or kNoPage
    model::SlotOpen settings;
    model::TokenId drawn = 0;  // the last token drawn
    SlotHistory history;       // for the penalties
};

class SlotTable {
 public:
    SlotTable(std::uint32_t slots, std::uint32_t context_length, std::uint32_t pages_total);

    // The plan's trims, closes, opens and grants, in this order. What does not fit is a bug of the
    // planner.
    void apply(const model::StepPlan& plan);

    // An open slot.
    [[nodiscard]] Slot& operator[](model::SlotId id);

    // Closes all slots.
    void reset();

 private:
    std::uint32_t pages_per_slot_;
    std::uint32_t pages_total_;
    std::vector<Slot> slots_;
};

}  // namespace troupe::cpu
