// How requests end, each in exactly one terminal event, and what they hear before.
#include <algorithm>
#include <chrono>

#include "actors/scheduler.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

constexpr auto kNewsInterval = std::chrono::milliseconds(limits::kNewsInterval_ms);
constexpr std::int64_t kRetryAfterMin_ms = 1'000;
constexpr std::int64_t kRetryAfterMax_ms = 60'000;
constexpr double kFinishIntervalShare = 0.1;  // weight of the newest

}  // namespace

// The flags of those who run are read at every step. Those who wait are looked at when somebody
// cancels and a few times a second; none of them is admitted without a look.
void Scheduler::end_the_stopped() {
    const bool drained = drain_until_ && now_ >= *drain_until_;
    const bool all = look_at_waiting_ || drained || now_ - news_at_ >= kNewsInterval;
    look_at_waiting_ = false;
    scratch_.clear();
    if (all && waiting_.count() > 0) waiting_.in_order(scratch_);
    add_admitted_to_scratch();
    for (Request* request : scratch_) {
        if (const auto reason = reason_to_stop(*request)) finish(*request, *reason);
    }
}

// The clients' requests that do not wait, or do not yet wait again; no beams.
void Scheduler::add_admitted_to_scratch() {
    for (Request* request : running_) {
        if (request->group == nullptr) scratch_.push_back(request);
    }
    for (const auto& group : groups_)
        scratch_.push_back(group->asker);
    for (Request* request : leaving_) {
        if (request->state == State::preempting) scratch_.push_back(request);
    }
}

std::optional<FinishReason> Scheduler::reason_to_stop(const Request& request) const {
    using runtime::StopReason;
    const auto& flag = request.submit.stop;
    switch (flag ? flag->reason() : StopReason::none) {
        case StopReason::none:
            break;
        case StopReason::cancelled:
        case StopReason::disconnected:
            return FinishReason::cancelled;
        case StopReason::deadline:
            return FinishReason::deadline;
        case StopReason::shutdown:
            return FinishReason::shutdown;
    }
    if (request.submit.deadline && now_ >= *request.submit.deadline) return FinishReason::deadline;
    if (drain_until_ && now_ >= *drain_until_) return FinishReason::shutdown;
    return std::nullopt;
}

void Scheduler::finish(Request& request, FinishReason reason, StopCause cause,
                       const std::string& error) {
    for (std::uint32_t answer = 0; answer < request.submit.answers; ++answer)
        tell_finished(request, answer, reason, cause, error);
    if (reason == FinishReason::cancelled) stats_.cancelled_tokens_total.add(request.generated);
    retire(request, reason);
}

void Scheduler::tell_finished(const Request& request, std::uint32_t answer, FinishReason reason,
                              StopCause cause, const std::string& error) {
    Finished finished;
    finished.session = request.submit.reply_to.session;
    finished.request = request.submit.request + answer;
    finished.reason = reason;
    finished.cause = cause;
    finished.usage = {request.prompt_length, request.cached_tokens, request.generated,
                      request.draft_tokens, request.accepted_tokens};
    finished.error = error;
    const auto planned_at = request.ever_planned ? request.planned_at : now_;
    const auto drawn_at = request.generated > 0 ? request.first_token_at : now_;
    finished.queued_ns = (planned_at - request.submitted_at).count();
    finished.prefill_ns = (drawn_at - planned_at).count();
    finished.decode_ns = (now_ - drawn_at).count();
    outbox_.add(request.submit.reply_to, std::move(finished));
    stats_.finished_total[static_cast<std::size_t>(reason)].add(1);
}

// All has been told: the request goes, its pages as soon as no submitted step names them.
void Scheduler::retire(Request& request, FinishReason reason) {
    if (reason == FinishReason::cancelled) request.cancelled_at = now_;
    if (reason == FinishReason::stop || reason == FinishReason::length)
        stats_.end_to_end.observe(now_ - request.submitted_at);
    --live_count_;
    waiting_.leave(request);

    if (request.state == State::waiting) {
        waiting_.dequeue(request);
        recycle(request);
        return;
    }
    TROUPE_ASSERT(request.state != State::ended, "a request ends once");
    const double interval_ns = static_cast<double>((now_ - last_finish_at_).count());
    finish_interval_ns_ += (interval_ns - finish_interval_ns_) * kFinishIntervalShare;
    last_finish_at_ = now_;
    if (request.group != nullptr) {
        end_beams(request);
        recycle(request);
    } else if (request.state == State::running) {
        leave(request);
    } else {
        request.state = State::ended;
    }
}

void Scheduler::leave(Request& request) {
    std::erase(running_, &request);
    leaving_.push_back(&request);
    request.state = State::ended;
}

void Scheduler::reject(const Submit& submit, Rejected::Reason reason, const std::string& message) {
    using Reason = Rejected::Reason;
    const bool later = reason != Reason::never_fits && reason != Reason::too_wide;
    for (std::uint32_t answer = 0; answer < submit.answers; ++answer) {
        outbox_.add(submit.reply_to, Rejected{.session = submit.reply_to.session,
                                              .request = submit.request + answer,
                                              .reason = reason,
                                              .message = message,
                                              .retry_after_ms = later ? retry_after_ms() : 0});
        stats_.rejected_total[static_cast<std::size_t>(reason)].add(1);
    }
}

// When the queue will have moved on, if requests go on ending as fast as they did.
std::int64_t Scheduler::retry_after_ms() const {
    const double wait_ms = finish_interval_ns_ / 1e6 * waiting_.count();
    return std::clamp(static_cast<std::int64_t>(std::min(wait_ms, 1e9)), kRetryAfterMin_ms,
                      kRetryAfterMax_ms);
}

void Scheduler::tell_the_waiting() {
    if (now_ - news_at_ < kNewsInterval) return;
    news_at_ = now_;
    if (waiting_.count() == 0) return;
    waiting_.in_order(scratch_);
    for (std::uint32_t position = 0; position < scratch_.size(); ++position) {
        Request& request = *scratch_[position];
        if (request.position_known && request.position_told == position) continue;
        request.position_known = true;
        request.position_told = position;
        outbox_.add(request.submit.reply_to,
                    Queued{request.submit.reply_to.session, request.submit.request, position});
    }
}

void Scheduler::tell_progress(Request& request) {
    if (now_ - request.progress_told_at < kNewsInterval || request.answer_count() > 0) return;
    tell_progress_now(request);
}

void Scheduler::tell_progress_now(Request& request) {
    request.progress_told_at = now_;
    outbox_.add(request.submit.reply_to, PromptProgress{.session = request.submit.reply_to.session,
                                                        .request = request.submit.request,
                                                        .prompt_done = request.written,
                                                        .prompt_total = request.prompt_length,
                                                        .cached = request.cached_tokens});
}

void Scheduler::fail_everybody(const std::string& message) {
    waiting_.in_order(scratch_);
    add_admitted_to_scratch();
    for (Request* request : scratch_)
        finish(*request, FinishReason::error, {}, message);
    for (Request* request : leaving_)
        recycle(*request);
}

// Empty pool, no slots open, step 0 next. Requests, if any, have been seen off before.
void Scheduler::start_afresh() {
    running_.clear();
    leaving_.clear();
    groups_.clear();
    unwanted_leases_.clear();
    in_flight_.clear();
    next_step_ = 0;
    cache_ = std::make_unique<PrefixCache>(settings_.pages_total, settings_.window);
    cache_counted_ = {};
    by_slot_.assign(slot_count_, nullptr);
    free_slots_.clear();
    for (model::SlotId slot = slot_count_; slot-- > 0;) {
        free_slots_.push_back(slot);
        stats_.slots[slot].request.set(0);
    }
    plan_ = std::make_unique<model::StepPlan>();
    admission_blocked_ = false;
}

}  // namespace troupe::actors
