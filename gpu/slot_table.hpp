// The slots as the host knows them: page tables' lengths, parameters, and which tokens were fed, as
// far as penalties count them. A slot's draw may still be under way on the device when its token is
// fed; then the log has a gap until the draw is known. Belongs to the executor's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "gpu/kernels/kv_pages.hpp"
#include "gpu/step_arrays.hpp"
#include "model/attention_window.hpp"
#include "model/step.hpp"
#include "model/token_counts.hpp"

namespace troupe::gpu {

struct Slot {
    bool open = false;
    std::uint64_t opened = 0;  // tells this use of the slot from the ones before
    std::uint32_t page_count = 0;
    model::SlotOpen settings;
    bool on_host = false;             // drawn by model::sample, see draws_on_host()
    model::TokenId drawn = 0;         // the last draw that is known
    std::uint32_t draws_pending = 0;  // steps that draw for it and have not been read
    std::vector<model::TokenId> fed;  // the answer's tokens since it opened, if it is penalised

    [[nodiscard]] std::uint32_t known_length() const {
        return settings.prompt_length + settings.answer_count;
    }
};

// A rule about the request alone, so that the same request is always drawn in the same place.
[[nodiscard]] bool draws_on_host(const model::DecodingParams& params);

// Words of a slot's page table on the device. Behind a window there are enough for the sinks, and
// for all that rows of a step and of the one before may read or be granted.
[[nodiscard]] PageTableShape page_table_shape(std::uint32_t context_length,
                                              const model::AttentionWindow& window,
                                              std::uint32_t step_tokens);

class SlotTable {
 public:
    SlotTable(std::uint32_t slots, std::uint32_t context_length, std::uint32_t pages_total,
              const PageTableShape& shape);

    // The plan's closes, opens, grants and copies, in this order; what the device must do for them
    // goes to `arrays`. Trims ask for nothing: what is not read any more may stay. What does not
    // fit is a bug of the planner.
    void apply(const model::StepPlan& plan, StepArrays& arrays);

    // `token`, which may be kDrawnToken, is computed at `position`. True where the device must
    // count it; counts of tokens that a rejected draft left behind are taken back in `arrays`.
    [[nodiscard]] bool feed(model::SlotId id, std::uint32_t position, model::TokenId token,
                            StepArrays& arrays);

    // A step's last draw is known, for the slot as it was when `opened`; later uses ignore it.
    void settle(model::SlotId id, std::uint64_t opened, model::TokenId drawn);

    // What the penalties count after the tokens up to `position` are fed.
    [[nodiscard]] static model::TokenCounts counts_at(const Slot& slot, std::uint32_t position);

    [[nodiscard]] Slot& operator[](model::SlotId id);
    void reset();

 private:
    void open_slot(const model::SlotOpen& open, StepArrays& arrays);
    void add_grants(const model::StepPlan& plan, StepArrays& arrays);

    std::uint32_t pages_per_slot_;
    std::uint32_t pages_total_;
    PageTableShape shape_;
    std::uint64_t opened_ = 0;
    std::vector<Slot> slots_;
};

}  // namespace troupe::gpu
