#include "actors/scheduler.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

constexpr const char* kNotFinite = "the model's scores are not finite numbers";

}  // namespace

void SchedulerSettings::describe(const model::BackendInfo& info) {
    context_length = info.context_length;
    slots_max = info.slots_max;
    pages_total = info.pages_total;
    tokens_per_step_max = info.tokens_per_step_max;
    backend_drafts = info.drafts;
    kv_bytes_per_token = info.kv_bytes_per_token;
    window = info.window;
}

std::uint32_t SchedulerSettings::pages_per_sequence_max() const {
    if (!window.bounded()) return pages_total;
    return std::min(pages_total, window.pages_max(tokens_per_step_max));
}

std::uint32_t SchedulerSettings::sequence_tokens_max() const {
    if (pages_per_sequence_max() < pages_total) return context_length;
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(context_length, std::uint64_t{pages_total} * model::kPageTokens));
}

Scheduler::Scheduler(SchedulerSettings settings, EngineStats& stats)
    : settings_(std::move(settings)),
      sequence_tokens_max_(settings_.sequence_tokens_max()),
      slot_count_(std::min(settings_.slots_max, settings_.tokens_per_step_max)),
      stats_(stats),
      budget_({.step_latency_ms = settings_.step_latency_ms,
               .prefill_latency_ms = settings_.prefill_latency_ms,
               .tokens_per_step_max = settings_.tokens_per_step_max}),
      outbox_(settings_.hub_count) {
    TROUPE_ASSERT(slot_count_ > 0 && sequence_tokens_max_ > 0, "the backend has room");
    TROUPE_ASSERT(settings_.pipeline_depth >= 1 &&
                  settings_.pipeline_depth <= limits::kStepsInFlightMax);
    start_afresh();
}

Scheduler::~Scheduler() = default;

void Scheduler::step(runtime::TimePoint now, std::span<SchedulerMessage> messages,
                     SchedulerOutput& out) {
    now_ = now;
    outbox_.clear();
    for (SchedulerMessage& message : messages)
        receive(message);
    end_the_stopped();
    const bool sending = may_send();
    ask_cache(sending);
    if (sending) plan_step();
    out.run = take_plan();
    tell_the_waiting();
    publish_stats();
    out.failure = std::exchange(failure_, {});
    out.step_again = in_flight_.empty() && live_count_ > 0;
    out.stopped = drain_until_ && in_flight_.empty() && live_count_ == 0;
}

void Scheduler::receive(SchedulerMessage& message) {
    std::visit([this](auto& m) { on(m); }, message);
}

void Scheduler::on(Submit& submit) {
    TROUPE_ASSERT(!submit.prompt.empty(), "the edge refuses empty prompts");
    if (drain_until_) {
        reject(submit, Rejected::Reason::shutting_down, "the server is shutting down");
        return;
    }
    TROUPE_ASSERT(submit.answers == 1 ||
                      (wants_beams(submit) &&
                       submit.answers <= static_cast<std::uint32_t>(submit.params.beam_width)),
                  "several answers are the best of a beam search");
    TROUPE_ASSERT(submit.prefill_only || !submit.score_prompt, "a prompt is scored on its own");
    const bool draws = !submit.prefill_only && submit.params.max_tokens != 0;
    const std::uint64_t needed = submit.prompt.size() + (draws ? 1 : 0);
    if (needed > sequence_tokens_max_) {
        reject(submit, Rejected::Reason::never_fits,
               "the request needs at least " + std::to_string(needed) +
                   " tokens of context, the limit is " + std::to_string(sequence_tokens_max_));
        return;
    }
    if (std::string why = why_too_wide(submit); !why.empty()) {
        reject(submit, Rejected::Reason::too_wide, std::move(why));
        return;
    }
    const std::uint32_t tokens_max = tokens_max_of(submit);
    Request& request = new_request();
    request.submit = std::move(submit);
    waiting_.enter(request);
    if (waiting_.count() >= settings_.waiting_max ||
        waiting_.count_of(request) >= settings_.waiting_per_principal_max) {
        reject(request.submit, Rejected::Reason::overloaded,
               "too many requests wait (" + std::to_string(waiting_.count_of(request)) +
                   " of yours, " + std::to_string(waiting_.count()) + " in all)");
        waiting_.leave(request);
        recycle(request);
        return;
    }
    ++live_count_;
    request.tokens = std::move(request.submit.prompt);
    request.prompt_length = request.length();
    const std::uint32_t room = tokens_max - request.prompt_length;
    const std::int32_t asked = request.submit.params.max_tokens;
    request.answer_max = asked < 0 ? room : std::min(room, static_cast<std::uint32_t>(asked));
    request.arrival = arrivals_++;
    request.submitted_at = now_;
    request.stop_strings = stop_strings_of(request.submit.params);
    waiting_.enqueue(request);
    if (const auto reason = reason_to_stop(request)) {
        finish(request, *reason);
    } else if (!draws && !request.submit.prefill_only) {
        finish(request, FinishReason::length);
    }
}

// What counts is the stop flag, which its sender has set. The message only wakes the scheduler, so
// it does not matter whether the request waits, runs, has ended or was never heard of.
void Scheduler::on(Cancel&) {
    look_at_waiting_ = true;
}

void Scheduler::on(StepDone& done) {
    const model::StepPlan& plan = *done.plan;
    const model::StepResult& result = *done.result;
    TROUPE_ASSERT(!in_flight_.empty() && in_flight_.front().step == plan.step,
                  "steps end in the order in which they were sent");
    TROUPE_ASSERT(result.sequences.size() == plan.sequences.size());
    const InFlight step = in_flight_.front();
    in_flight_.erase(in_flight_.begin());
    const std::uint32_t rows = step.decode_rows + step.draft_tokens;
    budget_.observe(rows, step.prompt_tokens, result.compute_ns);
    if (step.prompt_tokens == 0) step_cost_.observe(rows, step.model_drafts, result.compute_ns);
    stats_.steps_total.add(1);
    stats_.steps_compute_ns_total.add(result.compute_ns);
    stats_.steps_sample_ns_total.add(result.sample_ns);
    for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
        apply(*by_slot_[plan.sequences[i].slot], plan, result, i);
    }
    spare_plans_.push_back(std::move(done.plan));
    spare_results_.push_back(std::move(done.result));
}

// The executor has dropped every step that is in flight. Pages, slots and plans must agree with the
// device, so all of it ends, and the next plan, whose number is 0, begins on an empty one.
void Scheduler::on(ExecutorFailed& failed) {
    failure_ = failed.message;
    stats_.restarts_total.add(1);
    fail_everybody(failed.message);
    start_afresh();
}

void Scheduler::on(SchedulerShutdown& shutdown) {
    drain_until_ =
        drain_until_ ? std::min(*drain_until_, shutdown.drain_until) : shutdown.drain_until;
}

void Scheduler::apply(Request& request, const model::StepPlan& plan,
                      const model::StepResult& results, std::size_t index) {
    const model::SequenceStep& step = plan.sequences[index];
    const model::SequenceResult& result = results.sequences[index];
    TROUPE_ASSERT(request.in_flight > 0 && result.slot == step.slot);
    TROUPE_ASSERT(result.sampled_count + (result.failed ? 1 : 0) <= std::max(step.sample_count, 1u),
                  "a row that failed has no draw");
    const std::uint32_t rows = model::rows_that_count(plan, step, results, result);
    --request.in_flight;
    request.unread_draws -= step.sample_count;
    request.written = step.position + step.token_count;
    if (step.sample_count > 1) settle_draft(request, step, rows);
    if (request.state == State::ended) {
        stats_.dropped_rows_total.add(step.sample_count);
        return;
    }
    if (step.target_count > 0 && !tell_scores(request, step, result, results)) return;
    if (request.group != nullptr && rows > 0 && result.sampled_count > 0) {
        const model::SampledToken& best = results.sampled[result.sampled_begin];
        take_row(request, std::span(results.top).subspan(best.top_begin, best.top_count));
        return;
    }
    for (std::uint32_t i = 0; i < std::min(rows, result.sampled_count); ++i) {
        append(request, results.sampled[result.sampled_begin + i], results.top);
        if (request.state == State::ended) return;
    }
    if (rows > result.sampled_count) {
        finish(request.group == nullptr ? request : *request.group->asker, FinishReason::error, {},
               kNotFinite);
        return;
    }
    read_text(request);
    if (request.submit.prefill_only && request.written == request.prompt_length) {
        finish(request, FinishReason::stop);
    } else if (step.sample_count == 0) {
        tell_progress(request);
    }
}

// False where one of them could not be told, which ends the request. One that was preempted
// computes its prompt again: what has been told is not told twice.
bool Scheduler::tell_scores(Request& request, const model::SequenceStep& step,
                            const model::SequenceResult& result, const model::StepResult& results) {
    for (std::uint32_t i = 0; i < result.scored_count; ++i) {
        const std::uint32_t index = step.position + i + 1;
        if (index <= request.scores_told) continue;
        request.scores_told = index;
        outbox_.add_token<PromptScores>(request.submit.reply_to, request.submit.request, index,
                                        results.scored[result.scored_begin + i], results.top);
    }
    if (!result.failed) return true;
    finish(request, FinishReason::error, {}, kNotFinite);
    return false;
}

void Scheduler::append(Request& request, const model::SampledToken& token,
                       std::span<const model::TokenLogprob> top) {
    const model::DecodingParams& params = request.submit.params;
    if (request.generated++ == 0) {
        request.first_token_at = now_;
        stats_.time_to_first_token.observe(now_ - request.submitted_at);
    } else if (now_ != request.last_token_at) {  // else it came with the one before it
        stats_.inter_token.observe(now_ - request.last_token_at);
        if (now_ - request.last_token_at > kStall) stats_.stalls_total.add(1);
    }
    request.last_token_at = now_;
    stats_.generation_tokens_total.add(1);
    stats_.slots[request.slot].generated_tokens.set(request.generated);
    const bool may_end = params.min_tokens <= 0 ||
                         request.answer_count() >= static_cast<std::uint32_t>(params.min_tokens);
    const auto is_in = [&](const auto& ids) {
        return std::ranges::find(ids, token.id) != ids.end();
    };
    if (may_end &&
        ((!params.ignore_eos && is_in(settings_.end_tokens)) || is_in(params.stop_token_ids))) {
        finish(request, FinishReason::stop, {.stop_token = token.id});
        return;
    }
    outbox_.add_token(request.submit.reply_to, request.submit.request, request.answer_count(),
                      token, top);
    request.tokens.push_back(token.id);
    if (const auto cause = stop_string_after(request, token.id)) {
        finish(request, FinishReason::stop, *cause);
        return;
    }
    if (request.answer_count() >= request.answer_max) finish(request, FinishReason::length);
}

std::optional<model::TextStream> Scheduler::stop_strings_of(
    const model::DecodingParams& params) const {
    if (params.stop.empty()) return std::nullopt;
    TROUPE_ASSERT(settings_.tokenizer != nullptr, "stop strings need a tokenizer");
    return model::TextStream::make(*settings_.tokenizer, {.stops = params.stop}).value();
}

// The stop string that `token`, the answer's next, completes.
std::optional<StopCause> Scheduler::stop_string_after(Request& request, model::TokenId token) {
    if (!request.stop_strings) return std::nullopt;
    stop_text_.clear();
    request.stop_strings->feed({&token, 1}, stop_text_);
    const auto& hit = request.stop_strings->stop();
    if (!hit) return std::nullopt;
    return StopCause{.stop_string = static_cast<std::int32_t>(hit->index)};
}

void Scheduler::publish_stats() {
    const PrefixCacheStats cache = cache_->stats();
    const auto alone = std::ranges::count(running_, nullptr, &Request::group);
    stats_.requests_running.set(static_cast<std::uint32_t>(alone) +
                                static_cast<std::uint32_t>(groups_.size()));
    stats_.requests_waiting.set(waiting_.count());
    stats_.kv_pages_total.set(cache.pages_total);
    stats_.kv_pages_leased.set(cache.pages_leased);
    stats_.kv_pages_leased_max.set(std::max(stats_.kv_pages_leased_max.get(), cache.pages_leased));
    stats_.kv_pages_cached.set(cache.pages_cached);
    stats_.kv_bytes_per_token.set(settings_.kv_bytes_per_token);
    stats_.prefix_queried_tokens_total.add(cache.queried_tokens - cache_counted_.queried_tokens);
    stats_.prefix_hit_tokens_total.add(cache.hit_tokens - cache_counted_.hit_tokens);
    cache_counted_ = cache;
}

Request& Scheduler::new_request() {
    if (spare_requests_.empty()) {
        requests_.push_back(std::make_unique<Request>());
        spare_requests_.push_back(requests_.back().get());
    }
    Request* request = spare_requests_.back();
    spare_requests_.pop_back();
    return *request;
}

void Scheduler::recycle(Request& request) {
    request = Request{};
    spare_requests_.push_back(&request);
}

std::string Scheduler::check_integrity() const {
    std::string broken = cache_->check_integrity();
    if (!broken.empty()) return broken;
    if (broken = check_groups(); !broken.empty()) return broken;
    if (cache_->leases() != running_.size() + leaving_.size() + unwanted_leases_.size()) {
        return "a lease has no request";
    }
    if (free_slots_.size() + running_.size() + leaving_.size() != slot_count_) {
        return "a slot is lost or used twice";
    }
    std::size_t preempting = 0, beams = 0;
    for (const std::vector<Request*>* list : {&running_, &leaving_}) {
        for (const Request* r : *list) {
            if (by_slot_[r->slot] != r) return "a slot belongs to another request";
            if (r->capacity != cache_->pages(r->lease).size() * model::kPageTokens) {
                return "a request's capacity is not its lease's";
            }
            if (r->written > r->planned || r->planned > r->capacity) return "lengths disagree";
            if (r->planned > r->length() + r->unread_draws && r->state != State::ended) {
                return "a position was planned before its token was drawn";
            }
            if (r->in_flight > in_flight_.size())
                return "a request is in more steps than there are";
            preempting += r->state == State::preempting;
            beams += r->state == State::running && r->group != nullptr;
        }
    }
    if (live_count_ != running_.size() - beams + groups_.size() + preempting + waiting_.count()) {
        return "live requests are miscounted";
    }
    return {};
}

}  // namespace troupe::actors
