#include "cpu/step_sampler.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

constexpr std::size_t kTopLogprobsMax = 21;  // 20 alternatives and the token itself

// Lets the slot's history see the sequence's rows up to and including `row_count`.
void feed_history(Slot& slot, const model::SequenceStep& sequence, const RowBatch& batch,
                  std::uint32_t row_count, std::uint32_t& fed) {
    for (; fed < row_count; ++fed) {
        slot.history.feed(sequence.position + fed, batch.tokens[sequence.token_begin + fed]);
    }
}

}  // namespace

StepSampler::StepSampler(Forward& forward, ComputeThreads& threads, const Limits& limits,
                         std::vector<model::TokenId> end_tokens)
    : forward_(forward),
      threads_(threads),
      limits_(limits),
      end_tokens_(std::move(end_tokens)),
      scratch_(threads.workers()) {
    score_rows_.reserve(limits.rows_max);
    rows_.reserve(limits.rows_max);
    shares_.reserve(limits.score_rows_max);
    fed_.reserve(limits.rows_max);
    // For the worst draw, so that none allocates whichever worker meets it; untouched until then.
    for (Scratch& scratch : scratch_) {
        scratch.sampler.blocks.maxima.reserve(limits.vocabulary);
        scratch.sampler.thresholds.reserve(limits.vocabulary);
        scratch.sampler.ids.reserve(limits.vocabulary);
        scratch.sampler.candidates.reserve(limits.vocabulary);
        scratch.sampler.changed.reserve(limits.vocabulary);
        scratch.top.reserve(kTopLogprobsMax);
    }
}

Result<std::unique_ptr<StepSampler>> StepSampler::create(Forward& forward, ComputeThreads& threads,
                                                         const Limits& limits,
                                                         std::vector<model::TokenId> end_tokens) {
    std::unique_ptr<StepSampler> sampler(
        new StepSampler(forward, threads, limits, std::move(end_tokens)));
    Result<AlignedBuffer> scores = AlignedBuffer::allocate(std::size_t{limits.score_rows_max} *
                                                           limits.vocabulary * sizeof(float));
    if (!scores) return scores.error();
    sampler->scores_ = std::move(*scores);
    return sampler;
}

void StepSampler::run(const model::StepPlan& plan, const RowBatch& batch, SlotTable& slots,
                      model::StepResult& result) {
    plan_rows(plan, batch, slots, result);
    const auto rows = static_cast<std::uint32_t>(rows_.size());
    for (std::uint32_t begin = 0; begin < rows; begin += limits_.score_rows_max) {
        const std::uint32_t end = std::min(begin + limits_.score_rows_max, rows);
        forward_.score(std::span(rows_).subspan(begin, end - begin), scores_of(0).data());
        const auto scored = std::chrono::steady_clock::now();
        plan_shares(begin, end);
        threads_.run(static_cast<std::uint32_t>(shares_.size()), [&](std::uint32_t share,
                                                                     std::uint32_t worker) {
            draw_share(shares_[share], begin, plan, batch, slots, scratch_[worker], result);
        });
        result.sample_ns +=
            std::chrono::nanoseconds{std::chrono::steady_clock::now() - scored}.count();
    }
}

// Every sequence's rows that are scored, and where their results go: sizes are known before
// anything is drawn, so that the threads write into places of their own.
void StepSampler::plan_rows(const model::StepPlan& plan, const RowBatch& batch, SlotTable& slots,
                            model::StepResult& result) {
    score_rows_.clear();
    rows_.clear();
    fed_.assign(plan.sequences.size(), 0);
    std::uint32_t tops = 0;
    std::size_t logits = 0;
    for (std::uint32_t s = 0; s < plan.sequences.size(); ++s) {
        const model::SequenceStep& sequence = plan.sequences[s];
        Slot& slot = slots[sequence.slot];
        const auto top_count = static_cast<std::uint32_t>(slot.settings.params.top_shown());
        result.sequences.push_back(
            {.slot = sequence.slot,
             .sampled_begin = static_cast<std::uint32_t>(result.sampled.size()),
             .sampled_count = sequence.sample_count,
             .scored_begin = static_cast<std::uint32_t>(result.scored.size()),
             .scored_count = sequence.target_count});
        for (std::uint32_t i = 0; i < sequence.target_count; ++i) {
            ScoreRow& row = score_rows_.emplace_back();
            row.sequence = s;
            row.row = sequence.token_begin + i;
            row.target = static_cast<std::int32_t>(result.scored.size());
            result.scored.push_back(
                {.id = plan.targets[sequence.target_begin + i], .top_begin = tops});
            tops += top_count;
            rows_.push_back(row.row);
        }
        const std::uint32_t wanted = std::max(sequence.sample_count, sequence.logits_count);
        if (wanted == 0) feed_history(slot, sequence, batch, sequence.token_count, fed_[s]);
        for (std::uint32_t left = wanted; left > 0; --left) {
            ScoreRow row;
            row.sequence = s;
            row.row = sequence.token_begin + sequence.token_count - left;
            if (left <= sequence.sample_count) {
                row.sample = static_cast<std::int32_t>(result.sampled.size());
                result.sampled.emplace_back().top_begin = tops;
                tops += top_count;
            }
            if (left <= sequence.logits_count) row.logits = static_cast<std::int32_t>(logits++);
            score_rows_.push_back(row);
            rows_.push_back(row.row);
        }
    }
    result.top.resize(tops);
    result.logits.resize(logits * limits_.vocabulary);
}

// Cuts the chunk [begin, end) of score_rows_ where the sequence changes.
void StepSampler::plan_shares(std::uint32_t begin, std::uint32_t end) {
    shares_.clear();
    for (std::uint32_t i = begin; i < end; ++i) {
        if (i == begin || score_rows_[i].sequence != score_rows_[i - 1].sequence) {
            shares_.push_back({i, i});
        }
        shares_.back().end = i + 1;
    }
}

void StepSampler::draw_share(const Share& share, std::uint32_t chunk_begin,
                             const model::StepPlan& plan, const RowBatch& batch, SlotTable& slots,
                             Scratch& scratch, model::StepResult& result) {
    const std::uint32_t index = score_rows_[share.begin].sequence;
    const model::SequenceStep& sequence = plan.sequences[index];
    Slot& slot = slots[sequence.slot];
    for (std::uint32_t i = share.begin; i < share.end; ++i) {
        const ScoreRow& row = score_rows_[i];
        const std::span<float> scores = scores_of(i - chunk_begin);
        if (row.logits >= 0) {
            std::memcpy(result.logits.data() + static_cast<std::size_t>(row.logits) * scores.size(),
                        scores.data(), scores.size_bytes());
        }
        if (row.target >= 0) {
            score_target(row, scores, slot, scratch, result);
            continue;
        }
        const std::uint32_t rows_seen = row.row - sequence.token_begin + 1;
        feed_history(slot, sequence, batch, rows_seen, fed_[index]);
        model::SequenceResult& drawn = result.sequences[index];
        if (row.sample < 0 || drawn.failed) continue;
        model::SampledToken& sampled = result.sampled[static_cast<std::size_t>(row.sample)];
        if (!draw(scores, slot, sequence.position + rows_seen, scratch, sampled, result.top)) {
            drawn.failed = true;
            drawn.sampled_count = static_cast<std::uint32_t>(row.sample) - drawn.sampled_begin;
        }
    }
}

// Says how likely the row's target was.
void StepSampler::score_target(const ScoreRow& row, std::span<const float> scores, const Slot& slot,
                               Scratch& scratch, model::StepResult& result) {
    model::SequenceResult& sequence = result.sequences[row.sequence];
    if (sequence.failed) return;
    model::SampledToken& target = result.scored[static_cast<std::size_t>(row.target)];
    scratch.top.clear();
    const std::optional<model::SampledToken> scored = model::score(
        scores, target.id, slot.settings.params.top_shown(), scratch.sampler, scratch.top);
    if (!scored) {
        sequence.failed = true;
        sequence.scored_count = static_cast<std::uint32_t>(row.target) - sequence.scored_begin;
        return;
    }
    target.logprob = scored->logprob;
    target.top_count = scored->top_count;
    std::ranges::copy(scratch.top, result.top.begin() + target.top_begin);
}

// Draws the token that will stand at `position`; false where the scores do not allow one.
bool StepSampler::draw(std::span<float> scores, Slot& slot, std::uint32_t position,
                       Scratch& scratch, model::SampledToken& sampled,
                       std::vector<model::TokenLogprob>& top) const {
    const model::SlotOpen& settings = slot.settings;
    const std::uint32_t answer_length =
        position > settings.prompt_length ? position - settings.prompt_length : 0;
    const model::SamplingContext context{settings.params,       &slot.history.counts(), end_tokens_,
                                         settings.answer_index, answer_length,          position};
    scratch.top.clear();
    const std::optional<model::SampledToken> drawn =
        model::sample(scores, context, scratch.sampler, scratch.top);
    if (!drawn) {
        slot.drawn = 0;  // a step that is planned already needs some token to compute with
        return false;
    }
    slot.drawn = drawn->id;
    sampled.id = drawn->id;
    sampled.logprob = drawn->logprob;
    sampled.top_count = drawn->top_count;
    std::copy_n(scratch.top.begin() + drawn->top_begin, drawn->top_count,
                top.begin() + sampled.top_begin);
    return true;
}

}  // namespace troupe::cpu
