// What a slot's penalties count. A token counts once it is fed, not when it is drawn: then a
// rejected draft or a preempted and resumed sequence needs no messages about what is to be
// forgotten; the positions of the plan tell.
#pragma once

#include <cstdint>
#include <vector>

#include "model/step.hpp"
#include "model/token_counts.hpp"

namespace troupe::cpu {

class SlotHistory {
 public:
    // Starts with the prompt and answer so far of `open`, which must outlive the use of this.
    void open(const model::SlotOpen& open);

    // `token` is computed at `position`; afterwards counts() holds positions 0 .. position.
    void feed(std::uint32_t position, model::TokenId token);

    [[nodiscard]] const model::TokenCounts& counts() const { return counts_; }

 private:
    const model::SlotOpen* open_ = nullptr;
    std::vector<model::TokenId> fed_;  // the answer's tokens since the slot opened
    model::TokenCounts counts_;
};

}  // namespace troupe::cpu
