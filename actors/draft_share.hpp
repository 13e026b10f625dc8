// DraftShare: how many draft tokens each row of a step gets. A pure core of the scheduler.
//
// A draft token costs every row of its step some time and saves its own request a step if it is
// right. Rows get tokens one at a time, the likeliest first, as long as the step gives more tokens
// a second; and nobody may lose by it: each request's own tokens a second, in expectation, stay
// within 2 % of what they are without drafts. So a request that has no draft to offer, beside one
// that has, leaves room only where another row costs next to nothing.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "actors/step_cost.hpp"

namespace troupe::actors {

class DraftShare {
 public:
    // One decoding request's row.
    struct Row {
        double odds = 0;         // that a draft token is right if those before it are
        std::uint32_t most = 0;  // draft tokens that it could use; 0: has none
        std::uint32_t granted = 0;
    };

    // Sets `granted` of every row; their sum is at most `tokens_max`. False where all are 0.
    bool decide(std::span<Row> rows, const StepCost& cost, bool model_drafts,
                std::uint32_t tokens_max);

 private:
    struct Candidate {
        double probability = 0;  // of a row's next draft token being right, with all before it
        std::uint32_t row = 0;
    };

    [[nodiscard]] static double least_gain(std::span<const Row> rows);

    std::vector<Candidate> candidates_;  // a heap, the likeliest first
    std::vector<std::uint32_t> order_;   // rows in the order in which they got tokens
};

}  // namespace troupe::actors
