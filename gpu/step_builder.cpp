#include "gpu/step_builder.hpp"

#include <algorithm>

#include "gpu/layer_graphs.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::gpu {
namespace {

// Sequences of at most so many rows, which decode or check a draft, have their splits computed side
// by side: they are few and long, and would leave the device idle. Rows of prompts are many.
constexpr std::uint32_t kSplitRowsMax = 16;

// Those that hold anything that is seen, in ascending order.
template <class Visit>
void for_each_split(const SeenPositions& seen, Visit visit) {
    for (std::uint32_t split = seen.next_block(0, kSplitTokens); split * kSplitTokens < seen.end;
         split = seen.next_block(split + 1, kSplitTokens))
        visit(split);
}

}  // namespace

void StepBuilder::build(const model::StepPlan& plan, StepArrays& arrays, StepRecord& record) {
    TROUPE_ASSERT(plan.tokens.size() <= limits_.rows_max);
    arrays.clear();
    record = StepRecord{};
    record.plan = &plan;
    partials_ = 0;
    far_rows_ = 0;
    slots_.apply(plan, arrays);
    for (std::uint32_t i = 0; i < plan.sequences.size(); ++i) {
        const model::SequenceStep& sequence = plan.sequences[i];
        add_rows(plan, sequence, arrays);
        add_attention(sequence, plan.tokens.size() > kGraphRowsMax, arrays);
        add_targets(i, sequence, arrays, record);
        add_scores(i, sequence, arrays, record);
        record.opened.push_back(slots_[sequence.slot].opened);
    }
    TROUPE_ASSERT(arrays.given.size() == plan.tokens.size(), "a token belongs to no sequence");
    if (limits_.for_graphs && arrays.given.size() <= kGraphRowsMax) pad(arrays);
}

// With rows that stand nowhere, whose results nobody looks at, and attention work that is none.
void StepBuilder::pad(StepArrays& arrays) const {
    const LayerSizes sizes = padded_sizes(arrays.layer_sizes());
    arrays.given.resize(sizes.rows, 0);
    arrays.row_counts.resize(sizes.rows, 0);
    arrays.places.resize(sizes.rows, {kNoSlot, 0});
    arrays.angle_rows.resize(sizes.rows, {0, 0});
    arrays.items.resize(sizes.items, {0, {kNoSlot, 0}, 0, 0, 0, -1, 0});
    arrays.merges.resize(sizes.merges, {0, 0, 0});
}

void StepBuilder::add_rows(const model::StepPlan& plan, const model::SequenceStep& sequence,
                           StepArrays& arrays) {
    Slot& slot = slots_[sequence.slot];
    const std::uint32_t end = sequence.position + sequence.token_count;
    TROUPE_ASSERT(sequence.token_count > 0 && end <= limits_.context_length);
    TROUPE_ASSERT(sequence.token_begin == arrays.given.size());
    TROUPE_ASSERT(sequence.token_begin + sequence.token_count <= plan.tokens.size());
    TROUPE_ASSERT(end <= slot.page_count * kPageTokens, "a position has no page");
    TROUPE_ASSERT(std::max(sequence.sample_count, sequence.logits_count) <= sequence.token_count);
    TROUPE_ASSERT(sequence.target_count + sequence.sample_count <= sequence.token_count);
    for (std::uint32_t i = 0; i < sequence.token_count; ++i) {
        model::TokenId token = plan.tokens[sequence.token_begin + i];
        TROUPE_ASSERT(token == model::kDrawnToken || (token >= 0 && token < limits_.vocabulary));
        if (token == model::kDrawnToken && slot.on_host) {
            TROUPE_ASSERT(slot.draws_pending == 0, "a step was started before its token was drawn");
            token = slot.drawn;
        }
        const std::uint32_t position = sequence.position + i;
        arrays.given.push_back(token);
        arrays.places.push_back({sequence.slot, position});
        arrays.row_counts.push_back(slots_.feed(sequence.slot, position, token, arrays) ? 1 : 0);
        const std::uint32_t own = angle_row(position, arrays);
        const std::uint32_t for_sinks = limits_.window.position_for_sinks(position);
        const bool apart = limits_.window.sinks > 0 && for_sinks != position;
        arrays.angle_rows.push_back({own, apart ? angle_row(for_sinks, arrays) : own});
    }
}

std::uint32_t StepBuilder::angle_row(std::uint32_t position, StepArrays& arrays) {
    if (position < limits_.angle_table_rows) return position;
    frequencies_.append_angles(position, arrays.far_angles);
    return limits_.angle_table_rows + far_rows_++;
}

// `wide`: where the sequence has rows enough.
void StepBuilder::add_attention(const model::SequenceStep& sequence, bool wide,
                                StepArrays& arrays) {
    const ItemRows& most = limits_.item_rows;
    wide = wide && sequence.token_count > most.narrow && most.wide > most.narrow;
    const std::uint32_t step = wide ? most.wide : most.narrow;
    for (std::uint32_t i = 0; i < sequence.token_count; i += step) {
        const RowPlace place{sequence.slot, sequence.position + i};
        const std::uint32_t rows = std::min(step, sequence.token_count - i);
        const std::uint32_t splits = (place.position + rows - 1) / kSplitTokens + 1;
        const AttentionItem item{sequence.token_begin + i, place, rows, 0, splits, -1, 0};
        if (wide) {
            arrays.wide_items.push_back(item);
        } else {
            add_item(item, sequence.token_count <= kSplitRowsMax, arrays);
        }
    }
}

// One item of `whole`, or one of each of its splits, if there is room for their states.
void StepBuilder::add_item(const AttentionItem& whole, bool side_by_side, StepArrays& arrays) {
    const SeenPositions seen = seen_by_rows(whole.place.position, whole.row_count,
                                            limits_.window.tokens, limits_.window.sinks);
    std::uint32_t splits = 0;
    for_each_split(seen, [&](std::uint32_t) { ++splits; });
    const std::uint32_t states = whole.row_count * splits;
    if (splits == 1 || !side_by_side || partials_ + states > limits_.partials_max) {
        arrays.items.push_back(whole);
        return;
    }
    for (std::uint32_t row = 0; row < whole.row_count; ++row)
        arrays.merges.push_back({whole.row + row, partials_ + row * splits, splits});
    AttentionItem item = whole;
    item.partial = static_cast<std::int32_t>(partials_);
    item.partial_stride = splits;
    for_each_split(seen, [&](std::uint32_t split) {
        item.split_begin = split;
        item.split_end = split + 1;
        arrays.items.push_back(item);
        ++item.partial;
    });
    partials_ += states;
}

// They are few in a server's day: the host says how likely they were.
void StepBuilder::add_targets(std::uint32_t index, const model::SequenceStep& sequence,
                              StepArrays& arrays, StepRecord& record) {
    for (std::uint32_t i = 0; i < sequence.target_count; ++i) {
        ScoredRow scored;
        scored.sequence = index;
        scored.position = sequence.position + i;
        scored.target = static_cast<std::int32_t>(record.target_count++);
        scored.host_scores = static_cast<std::int32_t>(record.host_scores++);
        arrays.score_rows.push_back(sequence.token_begin + i);
        record.scored.push_back(scored);
    }
}

void StepBuilder::add_scores(std::uint32_t index, const model::SequenceStep& sequence,
                             StepArrays& arrays, StepRecord& record) {
    Slot& slot = slots_[sequence.slot];
    const std::uint32_t wanted = std::max(sequence.sample_count, sequence.logits_count);
    for (std::uint32_t left = wanted; left > 0; --left) {
        ScoredRow scored;
        scored.sequence = index;
        scored.position = sequence.position + sequence.token_count - left;
        scored.wanted_logits = left <= sequence.logits_count;
        const bool draws = left <= sequence.sample_count;
        if (draws) scored.sample = static_cast<std::int32_t>(record.sample_count++);
        if (draws && !slot.on_host) {
            SampleRow sample = sample_row(slot, scored.position + 1, arrays);
            sample.slot = sequence.slot;
            sample.score_row = static_cast<std::uint32_t>(arrays.score_rows.size());
            sample.later_count = left - 1;
            sample.later_begin = sequence.token_begin + sequence.token_count - sample.later_count;
            sample.last_of_slot = left == 1;
            scored.device_sample = static_cast<std::int32_t>(arrays.samples.size());
            arrays.samples.push_back(sample);
        }
        if (scored.wanted_logits || (draws && slot.on_host))
            scored.host_scores = static_cast<std::int32_t>(record.host_scores++);
        record.draws_on_host = record.draws_on_host || (draws && slot.on_host);
        arrays.score_rows.push_back(sequence.token_begin + sequence.token_count - left);
        record.scored.push_back(scored);
    }
    if (sequence.sample_count > 0) ++slot.draws_pending;
}

// All but the row's place in the step. `position`: of the token that is drawn.
SampleRow StepBuilder::sample_row(const Slot& slot, std::uint32_t position,
                                  StepArrays& arrays) const {
    const model::DecodingParams& params = slot.settings.params;
    const std::uint32_t answer_length =
        position > slot.settings.prompt_length ? position - slot.settings.prompt_length : 0;
    SampleRow row{};
    row.temperature = params.greedy() ? 0 : params.temperature;
    row.top_p = params.top_p;
    row.min_p = params.min_p;
    row.repetition_penalty = params.repetition_penalty;
    row.frequency_penalty = params.frequency_penalty;
    row.presence_penalty = params.presence_penalty;
    row.seed = params.seed;
    row.top_k = std::max(params.top_k, 0);
    row.answer_index = slot.settings.answer_index;
    row.position = position;
    row.bias_begin = static_cast<std::uint32_t>(arrays.bias.size());
    row.bias_count = static_cast<std::uint32_t>(params.logit_bias.size());
    for (const auto& [token, bias] : params.logit_bias)
        arrays.bias.push_back({token, bias});
    row.top_logprobs = params.logprobs ? static_cast<std::uint32_t>(params.top_logprobs) : 0;
    row.penalised = params.penalised();
    row.masks_end_tokens =
        params.ignore_eos || static_cast<std::int64_t>(answer_length) < params.min_tokens;
    row.logprobs = params.logprobs;
    return row;
}

}  // namespace troupe::gpu
