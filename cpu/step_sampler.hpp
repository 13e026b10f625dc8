// From the last layer's rows to drawn tokens: scores the rows that need it, some at a time, and
// draws from each as its slot's parameters say. Belongs to the executor's thread; sequences are
// shared out over the compute threads, one sequence's rows stay in order.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu/activations.hpp"
#include "cpu/compute_threads.hpp"
#include "cpu/forward.hpp"
#include "cpu/row_batch.hpp"
#include "cpu/slot_table.hpp"
#include "model/sampler.hpp"
#include "model/step.hpp"
#include "runtime/base/result.hpp"

namespace troupe::cpu {

class StepSampler {
 public:
    struct Limits {
        std::uint32_t vocabulary = 0;
        std::uint32_t rows_max = 0;        // in one step
        std::uint32_t score_rows_max = 0;  // whose scores are held at once
    };

    // `end_tokens`: all that end an answer. The references must outlive the result. Error:
    // out_of_memory.
    [[nodiscard]] static Result<std::unique_ptr<StepSampler>> create(
        Forward& forward, ComputeThreads& threads, const Limits& limits,
        std::vector<model::TokenId> end_tokens);

    // Fills `result` but for its step and the time of all. Slots remember what they drew.
    void run(const model::StepPlan& plan, const RowBatch& batch, SlotTable& slots,
             model::StepResult& result);

 private:
    // A row whose scores somebody wants.
    struct ScoreRow {
        std::uint32_t sequence = 0;
        std::uint32_t row = 0;
        std::int32_t sample = -1;  // its place in StepResult::sampled, if a token is drawn
        std::int32_t target = -1;  // its place in StepResult::scored, if one is asked about
        std::int32_t logits = -1;  // its place in StepResult::logits, if they are returned
    };
    // Rows of one sequence next to each other in the chunk that is being scored.
    struct Share {
        std::uint32_t begin = 0;
        std::uint32_t end = 0;
    };

    // A worker's own memory.
    struct Scratch {
        model::SamplerScratch sampler;
        std::vector<model::TokenLogprob> top;
    };

    StepSampler(Forward& forward, ComputeThreads& threads, const Limits& limits,
                std::vector<model::TokenId> end_tokens);

    void plan_rows(const model::StepPlan& plan, const RowBatch& batch, SlotTable& slots,
                   model::StepResult& result);
    void plan_shares(std::uint32_t begin, std::uint32_t end);
    void draw_share(const Share& share, std::uint32_t chunk_begin, const model::StepPlan& plan,
                    const RowBatch& batch, SlotTable& slots, Scratch& scratch,
                    model::StepResult& result);
    static void score_target(const ScoreRow& row, std::span<const float> scores, const Slot& slot,
                             Scratch& scratch, model::StepResult& result);
    [[nodiscard]] bool draw(std::span<float> scores, Slot& slot, std::uint32_t position,
                            Scratch& scratch, model::SampledToken& sampled,
                            std::vector<model::TokenLogprob>& top) const;
    [[nodiscard]] std::span<float> scores_of(std::uint32_t index) const {
        return {reinterpret_cast<float*>(scores_.data()) + std::size_t{index} * limits_.vocabulary,
                limits_.vocabulary};
    }

    Forward& forward_;
    ComputeThreads& threads_;
    const Limits limits_;
    const std::vector<model::TokenId> end_tokens_;
    AlignedBuffer scores_;  // [score_rows_max][vocabulary] floats
    std::vector<ScoreRow> score_rows_;
    std::vector<std::uint32_t> rows_;  // score_rows_' row numbers
    std::vector<Share> shares_;
    std::vector<std::uint32_t> fed_;  // [sequences] rows of each that its history has seen
    std::vector<Scratch> scratch_;    // [workers]
};

}  // namespace troupe::cpu
