// The toy model as a Backend, so that it runs through scheduler and cache like any other. Its "keys
// and values" are the tokens themselves, one for each position of a page: the last word and what
// the penalties count are read back through the slot's page table, so a wrong page is a wrong
// answer. Lives on the executor's thread; computes in wait().
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "model/backend.hpp"
#include "model/sampler.hpp"
#include "model/toy_model.hpp"

namespace troupe::model {

struct ToyBackendOptions {
    std::uint32_t context_length = 4096;
    std::uint32_t slots_max = 256;
    std::uint32_t pages_total = 4096;
    std::uint32_t tokens_per_step_max = 4096;
};

class ToyBackend final : public Backend {
 public:
    explicit ToyBackend(const ToyBackendOptions& options = {});

    [[nodiscard]] const BackendInfo& info() const override { return info_; }
    void submit(const StepPlan& plan) override;
    void wait(StepResult& result) override;
    void reset() override;

    // Positions computed since construction: what a cache of keys and values saves.
    [[nodiscard]] std::uint64_t tokens_computed() const { return tokens_computed_; }

 private:
    struct Slot {
        bool open = false;
        SlotOpen settings;
        TokenId drawn = kToyEnd;
        std::vector<PageId> pages;  // entry i: positions [16 i, 16 i + 16)
    };
    using Page = std::array<TokenId, kPageTokens>;

    void apply_changes(const StepPlan& plan);
    void run_sequence(const StepPlan& plan, const SequenceStep& step, StepResult& result);
    void score_target(const Slot& slot, TokenId before, TokenId target, StepResult& result);
    bool draw(Slot& slot, std::uint32_t position, StepResult& result);
    void count_tokens(Slot& slot, std::uint32_t position);
    [[nodiscard]] Slot& open_slot(SlotId id);
    [[nodiscard]] TokenId& token_at(Slot& slot, std::uint32_t position);

    BackendInfo info_;
    std::vector<Slot> slots_;
    std::vector<Page> pages_;
    std::deque<const StepPlan*> outstanding_;
    std::vector<float> row_;  // the scores that are being drawn from
    SamplerScratch scratch_;
    TokenCounts counts_;
    std::uint64_t tokens_computed_ = 0;
};

}  // namespace troupe::model
