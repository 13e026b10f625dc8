// From a StepPlan to the arrays that kernels read: which row stands where, how attention is cut
// into work, which rows are scored and how each draw is made. Pure but for the slots, which it
// brings up to date. Belongs to the executor's thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "gpu/rotary_frequencies.hpp"
#include "gpu/slot_table.hpp"
#include "gpu/step_arrays.hpp"
#include "model/step.hpp"

namespace troupe::gpu {

// What becomes of a scored row.
struct ScoredRow {
    std::uint32_t sequence = 0;  // of the plan
    std::uint32_t position = 0;  // of the row
    std::int32_t sample = -1;    // its number among the draws of the step, wherever they are made
    std::int32_t device_sample = -1;  // its number in StepArrays::samples
    std::int32_t host_scores = -1;    // its row among the scores that go to the host
    std::int32_t target = -1;         // its number among the tokens that are asked about
    bool wanted_logits = false;       // the caller wants them
};

// Everything of a step that the host needs again when its results are there.
struct StepRecord {
    const model::StepPlan* plan = nullptr;
    std::vector<std::uint64_t> opened;  // [sequences] Slot::opened
    std::vector<ScoredRow> scored;      // in the order of StepArrays::score_rows
    std::uint32_t sample_count = 0;
    std::uint32_t host_scores = 0;
    std::uint32_t target_count = 0;
    bool draws_on_host = false;
};

class StepBuilder {
 public:
    struct Limits {
        std::uint32_t context_length = 0;
        std::uint32_t rows_max = 0;
        std::uint32_t partials_max = 0;
        std::int32_t vocabulary = 0;
        std::uint32_t angle_table_rows = 0;
        model::AttentionWindow window;
        ItemRows item_rows;
        bool for_graphs = false;  // small steps are filled up to padded_sizes()
    };

    StepBuilder(SlotTable& slots, RotaryFrequencies frequencies, const Limits& limits)
        : slots_(slots), frequencies_(std::move(frequencies)), limits_(limits) {}

    // Both are overwritten.
    void build(const model::StepPlan& plan, StepArrays& arrays, StepRecord& record);

 private:
    void add_rows(const model::StepPlan& plan, const model::SequenceStep& sequence,
                  StepArrays& arrays);
    [[nodiscard]] std::uint32_t angle_row(std::uint32_t position, StepArrays& arrays);
    void add_attention(const model::SequenceStep& sequence, bool wide, StepArrays& arrays);
    void add_item(const AttentionItem& rows, bool side_by_side, StepArrays& arrays);
    void add_targets(std::uint32_t index, const model::SequenceStep& sequence, StepArrays& arrays,
                     StepRecord& record);
    void add_scores(std::uint32_t index, const model::SequenceStep& sequence, StepArrays& arrays,
                    StepRecord& record);
    void pad(StepArrays& arrays) const;
    [[nodiscard]] SampleRow sample_row(const Slot& slot, std::uint32_t position,
                                       StepArrays& arrays) const;

    SlotTable& slots_;
    const RotaryFrequencies frequencies_;
    const Limits limits_;
    std::uint32_t partials_ = 0;  // of the step that is being built, as the next
    std::uint32_t far_rows_ = 0;
};

}  // namespace troupe::gpu
