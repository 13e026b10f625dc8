// Two ways to the same draw. The usual steps in their usual order touch only the few scores that
// can survive them, found through the row's block maxima. Any other order, and typical_p, runs the
// steps one by one on all candidates.
#include "model/sampler.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "model/math.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::model {
namespace {

using enum SamplerStep;

constexpr std::array kDefaultOrder{penalties, temperature, top_k, typical_p, top_p, min_p};
constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr float kBanned = -std::numeric_limits<float>::infinity();

std::span<const SamplerStep> order_of(const DecodingParams& params) {
    return params.samplers.empty() ? std::span<const SamplerStep>{kDefaultOrder} : params.samplers;
}

bool acts(SamplerStep step, const DecodingParams& params) {
    switch (step) {
        case penalties:
            return params.penalised();
        case temperature:
            return params.temperature != 1;
        case top_k:
            return params.top_k > 0;
        case typical_p:
            return params.typical_p < 1;
        case top_p:
            return params.top_p < 1;
        case min_p:
            return params.min_p > 0;
    }
    return false;
}

// The steps that act. A request's own order leaves out what it does not name.
struct Plan {
    bool penalties = false;
    double temperature = 1;
    std::int32_t top_k = 0;
    double top_p = 1;
    double min_p = 0;
    bool usual = true;  // the above in the default order is all there is
};

Plan plan_of(const DecodingParams& params) {
    Plan plan;
    int last = -1;
    for (const SamplerStep step : order_of(params)) {
        if (!acts(step, params)) continue;
        plan.usual = plan.usual && static_cast<int>(step) > last && step != typical_p;
        last = static_cast<int>(step);
        if (step == penalties) plan.penalties = true;
        if (step == temperature) plan.temperature = params.temperature;
        if (step == top_k) plan.top_k = params.top_k;
        if (step == top_p) plan.top_p = params.top_p;
        if (step == min_p) plan.min_p = params.min_p;
    }
    return plan;
}

void apply_penalties(Candidates& set, const SamplingContext& context) {
    TROUPE_ASSERT(context.counts != nullptr);
    for (Candidate& c : set) {
        const TokenCounts::Entry* entry = context.counts->find(c.id);
        if (entry != nullptr) {
            c.score = penalised_score(c.score, context.params, entry->answer_count);
        }
    }
}

void apply_step(SamplerStep step, Candidates& set, const SamplingContext& context) {
    const DecodingParams& params = context.params;
    switch (step) {
        case penalties:
            return apply_penalties(set, context);
        case temperature:
            return apply_temperature(set, params.temperature);
        case top_k:
            return keep_top_k(set, params.top_k);
        case typical_p:
            return keep_typical_p(set, params.typical_p);
        case top_p:
            return keep_top_p(set, params.top_p);
        case min_p:
            return keep_min_p(set, params.min_p);
    }
}

// Changes single scores of a row. Remembers what they were where somebody will ask, and whether all
// of them were scores at all, which a later look at the row could no longer tell.
class RowEditor {
 public:
    RowEditor(std::span<float> row, std::vector<SamplerScratch::Changed>* changed)
        : row_(row), changed_(changed) {}

    void set(TokenId id, double score) {
        float& entry = row_[static_cast<std::size_t>(id)];
        valid_ = valid_ && entry <= kFloatMax;
        if (changed_ != nullptr) changed_->push_back({id, entry});
        if (entry == kBanned) return;
        entry = score == kBanned
                    ? kBanned
                    : static_cast<float>(std::clamp<double>(score, -kFloatMax, kFloatMax));
    }
    [[nodiscard]] float score(TokenId id) const { return row_[static_cast<std::size_t>(id)]; }
    [[nodiscard]] bool valid() const { return valid_; }

 private:
    std::span<float> row_;
    std::vector<SamplerScratch::Changed>* changed_;
    bool valid_ = true;
};

bool masks_end_tokens(const SamplingContext& context) {
    return context.params.ignore_eos ||
           static_cast<std::int64_t>(context.answer_length) < context.params.min_tokens;
}

// The end tokens' mask and the bias, which come before every step.
void edit_before_steps(RowEditor& row, const SamplingContext& context) {
    if (masks_end_tokens(context)) {
        for (const TokenId id : context.end_tokens)
            row.set(id, kBanned);
    }
    for (const auto& [id, bias] : context.params.logit_bias) {
        row.set(id, bias <= -100 ? kBanned : static_cast<double>(row.score(id)) + bias);
    }
}

void edit_penalties(RowEditor& row, const SamplingContext& context) {
    TROUPE_ASSERT(context.counts != nullptr);
    for (const TokenCounts::Entry& entry : context.counts->entries()) {
        row.set(entry.id, penalised_score(row.score(entry.id), context.params, entry.answer_count));
    }
}

// Enough blocks that the count-th largest of their maxima lies close to the count-th largest score.
std::size_t block_size_for(std::size_t row_size, std::size_t count) {
    std::size_t block_size = 256;
    while (block_size > 16 && row_size / block_size < 4 * count)
        block_size /= 2;
    return block_size;
}

// Fills scratch.candidates with every token of at least `threshold`, scores divided by `by`.
void gather(std::span<const float> row, float threshold, double by, SamplerScratch& scratch) {
    gather_at_least(row, scratch.blocks, std::max(threshold, -kFloatMax), scratch.ids);
    scratch.candidates.clear();
    for (const TokenId id : scratch.ids) {
        scratch.candidates.push_back(
            {id, static_cast<double>(row[static_cast<std::size_t>(id)]) / by});
    }
}

// The same with at least the `count` best tokens, and not many more.
void gather_best(std::span<const float> row, std::size_t count, double by,
                 SamplerScratch& scratch) {
    const std::vector<float>& maxima = scratch.blocks.maxima;
    if (count == 0 || count > maxima.size()) return gather(row, -kFloatMax, by, scratch);
    scratch.thresholds.assign(maxima.begin(), maxima.end());
    const auto nth = scratch.thresholds.begin() + static_cast<std::ptrdiff_t>(count - 1);
    std::nth_element(scratch.thresholds.begin(), nth, scratch.thresholds.end(), std::greater<>{});
    gather(row, *nth, by, scratch);
}

// The candidates that top-p keeps of the whole row.
void gather_top_p(std::span<const float> row, const Plan& plan, SamplerScratch& scratch) {
    const float max = scratch.blocks.max;
    const double total = exp_sum(row, max, static_cast<float>(1.0 / plan.temperature));
    gather_best(row, scratch.blocks.maxima.size() / 4, plan.temperature, scratch);
    if (set_weights(scratch.candidates) < plan.top_p * total) {
        // All scores below this one together weigh less than what top-p leaves out.
        const double left_out = (1 - plan.top_p) * total / static_cast<double>(row.size());
        const double threshold = max + plan.temperature * (math::log(left_out) - 1e-3);
        gather(row, static_cast<float>(threshold), plan.temperature, scratch);
        set_weights(scratch.candidates);
    }
    keep_top_p(scratch.candidates, plan.top_p, total);
}

// Fills scratch.candidates with what the usual steps keep. At least one of them must remove tokens.
void gather_usual(std::span<const float> row, const Plan& plan, SamplerScratch& scratch) {
    if (plan.top_k > 0) {
        gather_best(row, static_cast<std::size_t>(plan.top_k), plan.temperature, scratch);
        keep_top_k(scratch.candidates, plan.top_k);
        keep_top_p(scratch.candidates, plan.top_p);
    } else if (plan.top_p < 1) {
        gather_top_p(row, plan, scratch);
    } else {
        const double threshold =
            scratch.blocks.max + plan.temperature * (math::log(plan.min_p) - 1e-3);
        gather(row, static_cast<float>(threshold), plan.temperature, scratch);
    }
    keep_min_p(scratch.candidates, plan.min_p);
}

// argmax of score + noise, ties to the lower id. Who cannot win even with the largest noise is
// skipped, which changes nothing.
TokenId draw(const Candidates& set, const DrawPlace& place) {
    TROUPE_ASSERT(!set.empty());
    TokenId winner = 0;
    double best = -std::numeric_limits<double>::infinity();
    for (const Candidate& c : set) {
        if (c.score + kGumbelMax < best) continue;
        const double value = c.score + gumbel(place, c.id);
        if (value > best || (value == best && c.id < winner)) {
            best = value;
            winner = c.id;
        }
    }
    return winner;
}

// Turns scores into log-probabilities: ln p = score - log_sum.
double log_sum(std::span<const float> row, float max, double by) {
    return max / by + math::log(exp_sum(row, max, static_cast<float>(1 / by)));
}

// Appends the best of scratch.candidates to `top`; the candidates are reordered.
void append_top(std::int32_t count, double sum, SamplerScratch& scratch,
                std::vector<TokenLogprob>& top) {
    Candidates& set = scratch.candidates;
    const auto end = set.begin() + std::min<std::ptrdiff_t>(count, std::ssize(set));
    std::partial_sort(set.begin(), end, set.end(), ranks_before);
    for (auto it = set.begin(); it != end; ++it) {
        top.push_back({it->id, static_cast<float>(it->score - sum)});
    }
}

// Log-probabilities of the softmax of a whole row, scores divided by `by`: appends the best to
// `top` and returns the log sum.
double row_logprobs(std::span<const float> row, std::int32_t top_count, double by,
                    SamplerScratch& scratch, std::vector<TokenLogprob>& top) {
    const double sum = log_sum(row, scratch.blocks.max, by);
    if (top_count > 0) {
        gather_best(row, static_cast<std::size_t>(top_count), by, scratch);
        append_top(top_count, sum, scratch, top);
    }
    return sum;
}

struct Drawn {
    TokenId id = 0;
    double logprob = 0;  // processed, where it was asked for
};

// Draws from an edited row whose maxima are in scratch.blocks. Processed log-probabilities, if
// asked for, go to `top`.
Drawn draw_from_row(std::span<const float> row, const SamplingContext& context, const Plan& plan,
                    bool processed, SamplerScratch& scratch, std::vector<TokenLogprob>& top) {
    const DecodingParams& params = context.params;
    const DrawPlace place{params.seed, context.answer_index, context.position};
    const bool truncates = plan.top_k > 0 || plan.top_p < 1 || plan.min_p > 0;
    if (params.greedy() || (plan.usual && !truncates)) {
        const double by = params.greedy() ? 1 : plan.temperature;
        Drawn drawn{.id = params.greedy() ? scratch.blocks.argmax
                                          : gumbel_argmax(row, scratch.blocks, by, place)};
        if (processed) {
            drawn.logprob = row[static_cast<std::size_t>(drawn.id)] / by -
                            row_logprobs(row, params.top_logprobs, by, scratch, top);
        }
        return drawn;
    }
    if (plan.usual) {
        gather_usual(row, plan, scratch);
    } else {
        gather(row, -kFloatMax, 1, scratch);
        for (const SamplerStep step : order_of(params)) {
            if (acts(step, params)) apply_step(step, scratch.candidates, context);
        }
    }
    Drawn drawn{.id = draw(scratch.candidates, place)};
    if (processed) {
        const double weights = set_weights(scratch.candidates);
        const auto best =
            std::min_element(scratch.candidates.begin(), scratch.candidates.end(), ranks_before);
        const auto own = std::find_if(scratch.candidates.begin(), scratch.candidates.end(),
                                      [&](const Candidate& c) { return c.id == drawn.id; });
        const double sum = best->score + math::log(weights);
        drawn.logprob = own->score - sum;
        append_top(params.top_logprobs, sum, scratch, top);
    }
    return drawn;
}

float raw_score(std::span<const float> row, TokenId id, const SamplerScratch& scratch) {
    for (const SamplerScratch::Changed& changed : scratch.changed) {
        if (changed.id == id) return changed.raw;
    }
    return row[static_cast<std::size_t>(id)];
}

}  // namespace

std::optional<SampledToken> sample(std::span<float> row, const SamplingContext& context,
                                   SamplerScratch& scratch, std::vector<TokenLogprob>& top) {
    const DecodingParams& params = context.params;
    const Plan plan = plan_of(params);
    const bool raw = params.logprobs && params.logprobs_mode == LogprobsMode::raw;
    const bool processed = params.logprobs && !raw;
    SampledToken out;
    out.top_begin = static_cast<std::uint32_t>(top.size());

    double raw_sum = 0;
    if (raw) {
        find_maxima(row, block_size_for(row.size(), static_cast<std::size_t>(params.top_logprobs)),
                    scratch.blocks);
        if (!scratch.blocks.valid) return std::nullopt;
        raw_sum = row_logprobs(row, params.top_logprobs, 1, scratch, top);
    }
    scratch.changed.clear();
    RowEditor editor{row, raw ? &scratch.changed : nullptr};
    edit_before_steps(editor, context);
    if (plan.penalties && (plan.usual || params.greedy())) edit_penalties(editor, context);

    const std::int32_t best_needed = std::max(plan.top_k, params.top_logprobs);
    find_maxima(row, block_size_for(row.size(), static_cast<std::size_t>(std::max(best_needed, 0))),
                scratch.blocks);
    if (!editor.valid() || !scratch.blocks.valid) {
        top.resize(out.top_begin);
        return std::nullopt;
    }
    const Drawn drawn = draw_from_row(row, context, plan, processed, scratch, top);
    out.id = drawn.id;
    out.top_count = static_cast<std::uint32_t>(top.size()) - out.top_begin;
    if (raw) out.logprob = static_cast<float>(raw_score(row, out.id, scratch) - raw_sum);
    if (processed) out.logprob = static_cast<float>(drawn.logprob);
    return out;
}

std::optional<SampledToken> score(std::span<const float> row, TokenId target,
                                  std::int32_t top_count, SamplerScratch& scratch,
                                  std::vector<TokenLogprob>& top) {
    const auto begin = static_cast<std::uint32_t>(top.size());
    find_maxima(row, block_size_for(row.size(), static_cast<std::size_t>(top_count)),
                scratch.blocks);
    if (!scratch.blocks.valid) return std::nullopt;
    const double sum = row_logprobs(row, top_count, 1, scratch, top);
    return SampledToken{.id = target,
                        .logprob = static_cast<float>(row[static_cast<std::size_t>(target)] - sum),
                        .top_begin = begin,
                        .top_count = static_cast<std::uint32_t>(top.size()) - begin};
}

namespace {

// The candidates by rank with their probabilities; ranks the set itself too.
std::vector<TokenProbability> by_probability(Candidates& set) {
    const double sum = set_weights(set);
    std::sort(set.begin(), set.end(), ranks_before);
    std::vector<TokenProbability> tokens;
    tokens.reserve(set.size());
    for (const Candidate& c : set)
        tokens.push_back({c.id, c.weight / sum});
    return tokens;
}

Candidates candidates_of(std::span<const float> row) {
    Candidates set;
    for (std::size_t id = 0; id < row.size(); ++id) {
        if (row[id] > kBanned) set.push_back({static_cast<TokenId>(id), row[id]});
    }
    return set;
}

// Runs the steps on a copy of the row and shows the candidates after each that acts, by name. False
// if there is nothing to draw from.
template <class Show>
bool run_steps(std::span<const float> row, const SamplingContext& context, Show show) {
    const DecodingParams& params = context.params;
    BlockMaxima blocks;
    find_maxima(row, 256, blocks);
    if (!blocks.valid) return false;
    Candidates set = candidates_of(row);
    show("scores", set);
    if (masks_end_tokens(context) || !params.logit_bias.empty()) {
        std::vector<float> edited{row.begin(), row.end()};
        RowEditor editor{edited, nullptr};
        edit_before_steps(editor, context);
        set = candidates_of(edited);
        if (set.empty()) return false;
        show("bias", set);
    }
    for (const SamplerStep step : order_of(params)) {
        if (!acts(step, params) || (params.greedy() && step != penalties)) continue;
        apply_step(step, set, context);
        show(to_string(step), set);
    }
    if (params.greedy()) {
        keep_top_k(set, 1);
        show("greedy", set);
    }
    return true;
}

}  // namespace

std::optional<std::vector<DistributionStage>> distribution_stages(std::span<const float> row,
                                                                  const SamplingContext& context) {
    std::vector<DistributionStage> stages;
    const bool drawable = run_steps(row, context, [&](std::string_view name, Candidates& set) {
        stages.push_back({name, by_probability(set)});
    });
    if (!drawable) return std::nullopt;
    return stages;
}

std::optional<std::vector<TokenProbability>> distribution(std::span<const float> row,
                                                          const SamplingContext& context) {
    Candidates last;
    const bool drawable =
        run_steps(row, context, [&](std::string_view, const Candidates& set) { last = set; });
    if (!drawable) return std::nullopt;
    return by_probability(last);
}

}  // namespace troupe::model
