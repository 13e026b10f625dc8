#include "gpu/device_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::gpu {
namespace {

constexpr std::uint32_t kScoreRowsMax = 64;
constexpr std::uint32_t kPartialsMax = 1024;

using Clock = std::chrono::steady_clock;

// Positions whose angles lie in a table: what the model was trained for; with a window there may be
// more.
std::uint32_t angle_table_rows(const model::Hyperparameters& hp, const model::BackendInfo& info) {
    return std::min(hp.context_length, info.context_length);
}

RotaryFrequencies frequencies_of(const model::Hyperparameters& hp) {
    return {hp.rope_dimension_count, hp.rope_freq_base};
}

ItemRows item_rows_of(const DeviceModel& model) {
    if (!model.attends_in_halves()) return {};
    return item_rows(model.hp.heads_per_kv(), model.hp.head_length);
}

PageTableShape shape_of(const model::BackendInfo& info) {
    return page_table_shape(info.context_length, info.window, info.tokens_per_step_max);
}

}  // namespace

DeviceBackend::DeviceBackend(const Cards& cards, std::vector<DeviceModel> models,
                             std::unique_ptr<Collectives> collectives, model::BackendInfo info,
                             const CudaOptions& options)
    : info_(std::move(info)),
      hp_(models.front().hp),
      ranks_(cards.ids, std::move(models), std::move(collectives), frequencies_of(hp_),
             {padded_sizes({info_.tokens_per_step_max, 0, 0}).rows, kScoreRowsMax, kPartialsMax,
              info_.slots_max, shape_of(info_), angle_table_rows(hp_, info_), options.kv_form,
              info_.window, cards.warpgroups}),
      forward_(ranks_.first().forward),
      end_tokens_(DeviceBuffer<model::TokenId>::upload(options.end_tokens)),
      host_end_tokens_(options.end_tokens),
      with_graphs_(options.graphs),
      graphs_(ranks_, kGraphRowsMax + kPartialsMax, hp_.rope_dimension_count),
      edited_(std::size_t{kScoreRowsMax} * hp_.vocabulary_size),
      slots_(info_.slots_max, info_.context_length, std::numeric_limits<std::uint32_t>::max(),
             shape_of(info_)),
      builder_(slots_, frequencies_of(hp_),
               {info_.context_length, info_.tokens_per_step_max, kPartialsMax,
                info_.vocabulary_size, angle_table_rows(hp_, info_), info_.window,
                item_rows_of(ranks_.first().model), with_graphs_}) {
    if (options.time_steps) clock_.emplace();
    for (StepSlot& step : steps_) {
        step.device_results = DeviceBuffer<SampleResult>(info_.tokens_per_step_max);
        step.results = PinnedBuffer<SampleResult>(info_.tokens_per_step_max);
    }
}

// Takes what the cards have left, but for a margin that the driver and growing buffers need. Each
// holds its heads' share of every page.
Result<> DeviceBackend::allocate_pages(const CudaOptions& options) {
    const std::uint64_t free_bytes = ranks_.count() * ranks_.least_free_bytes();
    const std::uint64_t page_bytes = ranks_.page_bytes();
    const std::uint64_t pages_per_slot = (info_.context_length + kPageTokens - 1) / kPageTokens;
    const std::uint64_t available = free_bytes - free_bytes / 16;
    const std::uint64_t budget = options.kv_memory_bytes == 0 ? available : options.kv_memory_bytes;
    const std::uint64_t pages =
        options.kv_pages != 0 ? options.kv_pages
                              : std::min(info_.slots_max * pages_per_slot, budget / page_bytes);
    if (pages == 0 || pages * page_bytes > available) {
        return Error{
            ErrorKind::out_of_memory,
            fmt::format("no room for the KV cache on the device: {:.1f} MiB wanted, a page "
                        "of {} tokens takes {:.2f} MiB, {:.1f} MiB are free; {} "
                        "--kv-memory",
                        static_cast<double>(std::max(budget, page_bytes)) / 0x1p20, kPageTokens,
                        static_cast<double>(page_bytes) / 0x1p20,
                        static_cast<double>(available) / 0x1p20,
                        budget < page_bytes && available > page_bytes ? "raise" : "lower")};
    }
    info_.pages_total = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(pages, std::numeric_limits<std::uint32_t>::max()));
    info_.kv_bytes_per_token = page_bytes / kPageTokens;
    ranks_.allocate_pages(info_.pages_total);
    slots_ = SlotTable(info_.slots_max, info_.context_length, info_.pages_total, shape_of(info_));
    return {};
}

void DeviceBackend::submit(const model::StepPlan& plan) {
    TROUPE_ASSERT(started_ - read_ < 2 && held_back_ == nullptr, "two steps are outstanding");
    const bool after_host_draw = started_ > read_ && steps_[read_ % 2].record.draws_on_host;
    if (after_host_draw) {
        held_back_ = &plan;
    } else {
        start(plan);
    }
}

void DeviceBackend::wait(model::StepResult& result) {
    TROUPE_ASSERT(read_ < started_, "no step is outstanding");
    StepSlot& step = steps_[read_ % 2];
    ranks_.select_first();
    ranks_.wait(step.downloaded, read_ % 2);
    result.clear();
    read(step, result);
    if (clock_) result.idle_ns = clock_->read_idle_ns();
    const Clock::time_point arrived = Clock::now();
    settle(step, result);
    ++read_;
    const Clock::time_point now = Clock::now();
    if (step.record.draws_on_host)
        result.sample_ns = std::chrono::nanoseconds{now - arrived}.count();
    result.compute_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                            now - std::max(step.started, last_read_))
                            .count();
    last_read_ = now;
    if (held_back_ != nullptr) {
        start(*std::exchange(held_back_, nullptr));
    }
}

void DeviceBackend::reset() {
    ranks_.select_first();
    if (!come_to_rest()) throw model::BackendError("exchanges between cards have ended");
    CUDA_CHECK(cudaDeviceSynchronize());
    started_ = 0;
    read_ = 0;
    held_back_ = nullptr;
    if (clock_) clock_.emplace();
    slots_.reset();
}

void DeviceBackend::end_exchanges() {
    graphs_.clear();
    ranks_.end_exchanges();
}

bool DeviceBackend::come_to_rest() {
    if (ranks_.come_to_rest()) return true;
    end_exchanges();
    return false;
}

void DeviceBackend::start(const model::StepPlan& plan) {
    const std::size_t turn = started_++ % 2;
    StepSlot& step = steps_[turn];
    step.started = Clock::now();
    builder_.build(plan, step.arrays, step.record);
    ranks_.select_first();
    ranks_.upload(step.arrays, turn);
    if (clock_) clock_->begin(ranks_.first().compute);
    compute(step, turn);
    if (clock_) clock_->end(ranks_.first().compute);
    ranks_.finish(turn);
    downloads_.wait(ranks_.first().steps[turn].computed);
    if (!step.arrays.samples.empty()) {
        CUDA_CHECK(cudaMemcpyAsync(step.results.data(), step.device_results.data(),
                                   step.arrays.samples.size() * sizeof(SampleResult),
                                   cudaMemcpyDeviceToHost, downloads_.get()));
    }
    step.downloaded.record(downloads_);
}

void DeviceBackend::compute(StepSlot& step, std::size_t turn) {
    ranks_.apply_books(step.arrays, turn);
    const LayerSizes sizes = step.arrays.layer_sizes();
    if (with_graphs_ && sizes.rows > 0 && sizes.rows <= kGraphRowsMax) {
        graphs_.run(step.arrays, turn);
    } else {
        ranks_.run_layers(ranks_.all_layers(), sizes, ranks_.pointers(turn));
    }
    const std::size_t vocabulary = hp_.vocabulary_size;
    if (step.scores.size() < step.record.host_scores * vocabulary) {
        step.scores = PinnedBuffer<float>(step.record.host_scores * vocabulary);
    }
    score_and_sample(step, turn);
    if (!step.arrays.samples.empty()) ranks_.share_draws();
}

// Some rows at a time: scores of a whole step of a large vocabulary would take gigabytes.
void DeviceBackend::score_and_sample(StepSlot& step, std::size_t turn) {
    const StepPointers& pointers = ranks_.pointers(turn).front();
    const auto rows = static_cast<std::uint32_t>(step.arrays.score_rows.size());
    std::uint32_t sampled = 0;
    for (std::uint32_t begin = 0; begin < rows; begin += kScoreRowsMax) {
        const std::uint32_t end = std::min(begin + kScoreRowsMax, rows);
        ranks_.score(begin, end, turn);
        copy_scores(step, begin, end);
        const std::uint32_t first = sampled;
        while (sampled < step.arrays.samples.size() &&
               step.arrays.samples[sampled].score_row < end) {
            ++sampled;
        }
        Sample p{};
        p.rows = pointers.samples + first;
        p.results = step.device_results.data() + first;
        p.scores = forward_.scores();
        p.edited = edited_.data();
        p.counts = forward_.counts();
        p.bias = pointers.bias;
        p.end_tokens = end_tokens_.data();
        p.tokens = forward_.tokens();
        p.drawn = forward_.drawn();
        p.count = sampled - first;
        p.first_score_row = begin;
        p.vocabulary = hp_.vocabulary_size;
        p.end_token_count = static_cast<std::uint32_t>(end_tokens_.size());
        sample(p, ranks_.first().compute.get());
    }
}

// Those of the scores [begin, end) that the host wants, on their way before the next overwrite
// them.
void DeviceBackend::copy_scores(StepSlot& step, std::uint32_t begin, std::uint32_t end) {
    const std::size_t vocabulary = hp_.vocabulary_size;
    for (std::uint32_t i = begin; i < end; ++i) {
        const std::int32_t target = step.record.scored[i].host_scores;
        if (target < 0) continue;
        CUDA_CHECK(cudaMemcpyAsync(
            step.scores.data() + static_cast<std::size_t>(target) * vocabulary,
            forward_.scores() + (i - begin) * vocabulary, vocabulary * sizeof(float),
            cudaMemcpyDeviceToHost, ranks_.first().compute.get()));
    }
}

void DeviceBackend::read(StepSlot& step, model::StepResult& result) {
    const model::StepPlan& plan = *step.record.plan;
    result.step = plan.step;
    for (const model::SequenceStep& sequence : plan.sequences) {
        const auto begin = static_cast<std::uint32_t>(result.sampled.size());
        const auto targets = static_cast<std::uint32_t>(result.scored.size());
        result.sequences.push_back({.slot = sequence.slot,
                                    .sampled_begin = begin,
                                    .sampled_count = sequence.sample_count,
                                    .scored_begin = targets,
                                    .scored_count = sequence.target_count});
        result.sampled.resize(begin + sequence.sample_count);
        result.scored.resize(targets + sequence.target_count);
    }
    for (const ScoredRow& scored : step.record.scored)
        read_row(step, scored, result);
}

void DeviceBackend::read_row(StepSlot& step, const ScoredRow& scored, model::StepResult& result) {
    if (scored.wanted_logits) {
        const std::size_t vocabulary = hp_.vocabulary_size;
        const float* const scores =
            step.scores.data() + static_cast<std::size_t>(scored.host_scores) * vocabulary;
        result.logits.insert(result.logits.end(), scores, scores + vocabulary);
    }
    model::SequenceResult& sequence = result.sequences[scored.sequence];
    if (sequence.failed) return;
    if (scored.target >= 0 && !score_target(step, scored, result)) {
        sequence.failed = true;
        sequence.scored_count = static_cast<std::uint32_t>(scored.target) - sequence.scored_begin;
        return;
    }
    if (scored.sample < 0) return;
    const bool drawn = scored.device_sample >= 0 ? read_draw(step, scored, result)
                                                 : draw_on_host(step, scored, result);
    if (drawn) return;
    sequence.failed = true;
    sequence.sampled_count = static_cast<std::uint32_t>(scored.sample) - sequence.sampled_begin;
}

// False where the scores did not allow a draw.
bool DeviceBackend::read_draw(const StepSlot& step, const ScoredRow& scored,
                              model::StepResult& result) {
    const SampleResult& drawn = step.results[static_cast<std::size_t>(scored.device_sample)];
    if (drawn.failed != 0) return false;
    model::SampledToken& sampled = result.sampled[static_cast<std::size_t>(scored.sample)];
    const model::SlotId slot = step.record.plan->sequences[scored.sequence].slot;
    sampled.id = drawn.token;
    if (step.arrays.samples[static_cast<std::size_t>(scored.device_sample)].logprobs)
        sampled.logprob = drawn.logprob;
    TROUPE_ASSERT(slot < info_.slots_max && drawn.top_count <= kTopLogprobsMax);
    sampled.top_begin = static_cast<std::uint32_t>(result.top.size());
    sampled.top_count = drawn.top_count;
    for (std::uint32_t i = 0; i < drawn.top_count; ++i)
        result.top.push_back({drawn.top_ids[i], drawn.top_logprobs[i]});
    return true;
}

// Likewise for a target.
bool DeviceBackend::score_target(const StepSlot& step, const ScoredRow& scored,
                                 model::StepResult& result) {
    const model::StepPlan& plan = *step.record.plan;
    const model::SequenceStep& sequence = plan.sequences[scored.sequence];
    const std::size_t vocabulary = hp_.vocabulary_size;
    const float* const scores =
        step.scores.data() + static_cast<std::size_t>(scored.host_scores) * vocabulary;
    const model::TokenId target =
        plan.targets[sequence.target_begin + scored.position - sequence.position];
    const std::optional<model::SampledToken> found =
        model::score({scores, vocabulary}, target,
                     slots_[sequence.slot].settings.params.top_shown(), scratch_, result.top);
    if (found) result.scored[static_cast<std::size_t>(scored.target)] = *found;
    return found.has_value();
}

bool DeviceBackend::draw_on_host(const StepSlot& step, const ScoredRow& scored,
                                 model::StepResult& result) {
    const Slot& slot = slots_[step.record.plan->sequences[scored.sequence].slot];
    const model::SlotOpen& settings = slot.settings;
    const std::size_t vocabulary = hp_.vocabulary_size;
    const float* const scores =
        step.scores.data() + static_cast<std::size_t>(scored.host_scores) * vocabulary;
    row_.assign(scores, scores + vocabulary);
    const std::uint32_t position = scored.position + 1;
    const std::uint32_t answer_length =
        position > settings.prompt_length ? position - settings.prompt_length : 0;
    const model::TokenCounts counts = SlotTable::counts_at(slot, scored.position);
    const model::SamplingContext context{settings.params,       &counts,       host_end_tokens_,
                                         settings.answer_index, answer_length, position};
    const std::optional<model::SampledToken> drawn =
        model::sample(row_, context, scratch_, result.top);
    if (drawn) result.sampled[static_cast<std::size_t>(scored.sample)] = *drawn;
    return drawn.has_value();
}

// The slots learn what they drew, unless they were opened anew meanwhile.
void DeviceBackend::settle(const StepSlot& step, const model::StepResult& result) {
    for (std::size_t i = 0; i < result.sequences.size(); ++i) {
        const model::SequenceResult& sequence = result.sequences[i];
        if (step.record.plan->sequences[i].sample_count == 0) continue;
        const auto last = sequence.sampled_begin + sequence.sampled_count - 1;
        const model::TokenId drawn = sequence.failed ? 0 : result.sampled[last].id;
        slots_.settle(sequence.slot, step.record.opened[i], drawn);
    }
}

}  // namespace troupe::gpu
