// Who gets pages: the step's one question to the prefix cache, and what follows from its answer.
#include <algorithm>

#include "actors/scheduler.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

// Room behind a prompt that is leased with it, so that most steps ask for no growth.
constexpr std::uint32_t kGrowthTokens = model::kPageTokens;

// Of the pool, at most this part is kept for the growth of those who run when others are admitted.
constexpr std::uint32_t kKeepFreeDivisor = 4;

}  // namespace

void Scheduler::ask_cache(bool sending) {
    ask_.clear();
    growing_.clear();
    must_grow_ = 0;
    forking_.clear();
    admitting_.clear();
    ask_releases();
    ask_trims();
    if (sending) {
        ask_growth();
        must_grow_ = growing_.size();
        ask_draft_growth();
        ask_forks();
        ask_admissions();
    }
    cache_->step(ask_, answer_);
    see_off_the_departing();
    make_room();
    take_grown();
    take_forked();
    take_admitted();
}

// Written pages are published, those of requests that go included: a continued conversation, or a
// preempted request that comes back, finds them.
void Scheduler::ask_releases() {
    departing_.clear();
    const auto publish = [this](Request& request) {
        const std::uint32_t known = request.publishable();
        if (known / model::kPageTokens <= request.published_pages) return;
        request.published_pages = known / model::kPageTokens;
        ask_.publish.push_back(
            {request.lease, std::span<const model::TokenId>(request.tokens).first(known)});
    };
    for (Request* request : running_)
        publish(*request);
    ask_.release.assign(unwanted_leases_.begin(), unwanted_leases_.end());
    unwanted_leases_.clear();
    for (Request* request : leaving_) {
        publish(*request);
        if (request->in_flight > 0) continue;
        if (request->cancelled_at) stats_.cancel.observe(now_ - *request->cancelled_at);
        ask_.release.push_back(request->lease);
        departing_.push_back(request);
        plan_->closes.push_back(request->slot);
        free_slots_.push_back(request->slot);
        by_slot_[request->slot] = nullptr;
        stats_.slots[request->slot].request.set(0);
    }
    if (departing_.empty()) return;
    std::erase_if(leaving_, [](const Request* request) { return request->in_flight == 0; });
    for (Request* request : departing_) {
        if (request->state != State::preempting) continue;
        request->state = State::waiting;
        waiting_.enqueue_preempted(*request);
    }
}

// What no row of a submitted or later step reads goes back. Rows stand at `written` and after, and
// not before the last token that is known, whatever becomes of a draft; those of a draft model
// may be one token behind.
void Scheduler::ask_trims() {
    if (!settings_.window.bounded()) return;
    for (Request* request : running_) {
        const std::uint32_t ahead = std::min(request->written, request->length() - 1);
        const std::uint32_t position = ahead - std::min(ahead, 1u);
        const std::uint32_t begin = request->unread_end;
        const std::uint32_t end = settings_.window.unread_end(position);
        if (end <= begin) continue;
        request->unread_end = end;
        ask_.trim.push_back({request->lease, position});
        plan_->trims.push_back({request->slot, begin, end});
    }
}

// A page at a time while a sequence decodes. Its prompt had all of its pages from the start, unless
// the window bounds what it holds: then those of the next step.
void Scheduler::ask_growth() {
    for (Request* request : running_) {
        if (!wants_row(*request)) continue;
        const std::uint32_t ahead =
            settings_.window.bounded()
                ? std::min(request->remaining(), settings_.tokens_per_step_max)
                : 1;
        if (request->planned + ahead <= request->capacity) continue;
        const std::uint32_t pages =
            pages_for(request->planned + ahead) - request->capacity / model::kPageTokens;
        ask_.grow.push_back({request->lease, pages});
        growing_.push_back(request);
    }
}

void Scheduler::ask_admissions() {
    const std::uint32_t slots = unreserved_slots();
    if (waiting_.count() == 0 || slots == 0) return;
    if (!ask_.release.empty() || !ask_.trim.empty() || running_.empty()) admission_blocked_ = false;
    if (admission_blocked_) return;
    const auto blocked = [this](const Request& request) {
        const bool stopped = reason_to_stop(request).has_value();
        look_at_waiting_ |= stopped;  // the next step ends it
        return stopped || cache_->pending(request.waits_for);
    };
    waiting_.next(std::min<std::size_t>(slots, limits::kAdmissionsPerStep), blocked, admitting_);
    keep_to_free_slots();
    const auto running = static_cast<std::uint32_t>(running_.size());
    const std::uint32_t keep_free = std::min(running, settings_.pages_total / kKeepFreeDivisor);
    for (const Request* request : admitting_) {
        const std::uint32_t growth =
            request->submit.prefill_only
                ? 0
                : std::min(kGrowthTokens, request->answer_max - request->answer_count());
        ask_.admit.push_back(
            {.tokens = request->tokens,
             .growth_tokens = growth,
             .salt = request->submit.cache_salt,
             .shared_tokens = request->submit.shared_tokens,
             .computes_all = request->submit.score_prompt,
             .keep_free = keep_free + pages_of_further_beams(*request, request->length() + growth),
             .pages_max = settings_.pages_per_sequence_max()});
    }
}

void Scheduler::see_off_the_departing() {
    for (Request* request : departing_) {
        request->lease = kNoLease;
        request->published_pages = 0;
        if (request->state == State::ended) recycle(*request);
    }
}

// Where somebody was refused a page that must have it, unless there are some on their way back.
void Scheduler::make_room() {
    const bool refused = std::ranges::count(std::span(answer_.grown).first(must_grow_), 0u) > 0 ||
                         std::ranges::count(answer_.forked, kNoLease) > 0;
    if (refused && leaving_.empty()) preempt_youngest();
}

void Scheduler::take_grown() {
    for (std::size_t i = 0; i < growing_.size(); ++i) {
        Request& request = *growing_[i];
        const std::size_t known = request.capacity / model::kPageTokens;
        request.capacity += answer_.grown[i] * model::kPageTokens;
        if (request.state == State::running) grant_pages(request, known);
    }
}

void Scheduler::take_admitted() {
    for (std::size_t i = 0; i < admitting_.size(); ++i) {
        const CacheStepDone::Admitted& admitted = answer_.admitted[i];
        switch (admitted.refusal) {
            case CacheStepDone::Refusal::none:
                start_running(*admitting_[i], admitted);
                break;
            case CacheStepDone::Refusal::prefix_pending:
                admitting_[i]->waits_for = admitted.waits_for;
                break;
            case CacheStepDone::Refusal::no_pages:
                admission_blocked_ = true;
                break;
            case CacheStepDone::Refusal::behind:
                break;
        }
    }
}

void Scheduler::start_running(Request& request, const CacheStepDone::Admitted& admitted) {
    waiting_.dequeue(request);
    request.state = State::running;
    request.waits_for = {};
    if (!request.ever_planned) {
        request.ever_planned = true;
        request.cached_tokens = admitted.cached_tokens;
        request.planned_at = now_;
        stats_.queue.observe(now_ - request.submitted_at);
        request.progress_told_at = now_;
    }
    if (wants_beams(request.submit)) {
        start_beams(request, admitted);
    } else {
        occupy_slot(request, admitted.lease, admitted.cached_tokens);
    }
}

// The request runs, with a slot of its own; its first `written` tokens are in the lease's pages.
void Scheduler::occupy_slot(Request& request, LeaseId lease, std::uint32_t written) {
    request.lease = lease;
    request.capacity = static_cast<std::uint32_t>(cache_->pages(lease).size()) * model::kPageTokens;
    request.planned = written;
    request.written = written;
    request.published_pages = written / model::kPageTokens;
    request.unread_end =
        std::max(settings_.window.unread_end(written), settings_.window.first_unread_page());
    request.slot = free_slots_.back();
    free_slots_.pop_back();
    by_slot_[request.slot] = &request;
    running_.push_back(&request);
    open_slot(request);
}

void Scheduler::preempt_youngest() {
    stats_.preemptions_total.add(1);
    Request& youngest = **std::ranges::max_element(running_, {}, &Request::arrival);
    if (youngest.group != nullptr) {
        preempt_beams(*youngest.group->asker);
        return;
    }
    leave(youngest);
    youngest.state = State::preempting;
}

// A beam's next token is known when the rows of all its group are.
bool Scheduler::wants_row(const Request& request) {
    if (request.group != nullptr && request.unread_draws > 0) return false;
    return request.remaining() > 0 && (request.submit.prefill_only || !request.draws_all_planned());
}

}  // namespace troupe::actors
