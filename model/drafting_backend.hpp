// A Backend made of two: a target, whose answers it gives, and a smaller draft model with the same
// vocabulary, which proposes what stands in a plan as kDraftToken. The draft model follows every
// step with the same slots, pages and positions, so that a prefix that the cache knows is known to
// both; where tokens are proposed it draws them one by one, by the request's own rules and with the
// same noise (docs/decoding.md), which makes agreement as likely as can be. Lives on the executor's
// thread; computes in wait().
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "model/backend.hpp"

namespace troupe::model {

class DraftingBackend final : public Backend {
 public:
    // The draft model has the target's vocabulary, at least its slots and pages, and takes steps of
    // the target's size and one token more for each slot.
    DraftingBackend(std::unique_ptr<Backend> target, std::unique_ptr<Backend> draft);

    [[nodiscard]] const BackendInfo& info() const override { return info_; }
    void submit(const StepPlan& plan) override;
    void wait(StepResult& result) override;
    void reset() override;

 private:
    struct Slot {
        TokenId drawn = 0;  // by the target, the last
        TokenId missed =
            kDrawnToken;  // the token before the next row, if the draft has not seen it
    };
    // A sequence of target_plan_ with tokens to be proposed; all that are left once each round.
    struct Proposal {
        std::size_t sequence = 0;  // its index in the plan
        std::uint32_t next = 0;    // index into the plan's tokens
        std::uint32_t end = 0;
    };

    void fill_in(const StepPlan& plan);
    void follow();
    void follow_sequence(const SequenceStep& sequence);
    void take_proposals();
    void settle(const StepPlan& plan, StepResult& result);

    std::unique_ptr<Backend> target_;
    std::unique_ptr<Backend> draft_;
    BackendInfo info_;
    std::vector<Slot> slots_;
    std::deque<const StepPlan*> outstanding_;
    StepPlan target_plan_;
    StepPlan draft_plan_;
    StepResult draft_result_;
    std::vector<Proposal> proposals_;
};

}  // namespace troupe::model
