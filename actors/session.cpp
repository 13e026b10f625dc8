#include "actors/session.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

constexpr std::size_t kRecentIdsMax = 64;
constexpr std::size_t kControlEventBytes = 256;  // a control frame's fixed part, about

RequestError queue_full(const std::string& what, std::size_t most) {
    return {.status = 429,
            .code = "websocket_queue_full",
            .message =
                fmt::format("This connection has {} {} already; wait for one to end.", most, what),
            .param = {},
            .retry_after_ms = 1000};
}

RequestError no_lane(std::string_view stream_id) {
    return {.status = 404,
            .code = "response_not_found",
            .message = fmt::format("There is no response on \"{}\".", stream_id),
            .param = "stream_id"};
}

}  // namespace

Session::Session(SessionId self, Principal principal, const SessionLimits& limits,
                 LiveResponses& live, const model::Tokenizer& tokenizer)
    : self_(self), principal_(principal), limits_(limits), live_(live), tokenizer_(tokenizer) {}

void Session::set_principal(Principal principal) {
    TROUPE_ASSERT(in_flight_ == 0 && queued_ == 0, "work belongs to the principal who asked");
    principal_ = principal;
}

// ---- from the client ----------------------------------------------------------------------------

void Session::create(CreateRequest request) {
    enqueue(std::move(request));
}

void Session::resume(ResumeRequest request) {
    enqueue(std::move(request));
}

template <class Request>
void Session::enqueue(Request request) {
    if (gone_) return;
    const auto stream_id = request.stream_id;
    if (draining_) return report(shutting_down_error(), std::move(request.event_id), stream_id);
    Lane* lane = lane_for(stream_id);
    if (lane == nullptr)
        return report(queue_full("named lanes in use", limits_.named_lanes_max),
                      std::move(request.event_id), stream_id);
    const bool starts_now =
        lane->waiting.empty() && !lane->work && in_flight_ < limits_.in_flight_max;
    if (!starts_now && queued_ >= limits_.queued_max)
        return report(queue_full("creates waiting", limits_.queued_max),
                      std::move(request.event_id), stream_id);
    lane->last_use = next_arrival_;
    lane->waiting.push_back({.arrival = next_arrival_++, .what = std::move(request)});
    ++queued_;
    start_waiting();
}

void Session::refuse_create(std::optional<std::string> stream_id, std::string event_id,
                            RequestError error) {
    const auto lane = lanes_.find(stream_id.value_or(""));
    const bool nothing_before =
        lane == lanes_.end() || (lane->second.waiting.empty() && !lane->second.work);
    if (gone_ || nothing_before || queued_ >= limits_.queued_max)
        return report(std::move(error), std::move(event_id), std::move(stream_id));
    lane->second.waiting.push_back(
        {.arrival = next_arrival_++, .what = ErrorEvent{std::move(error), std::move(event_id)}});
    ++queued_;
}

void Session::cancel(const CancelRequest& request) {
    if (!request.response_id.empty()) {
        if (const auto response = live_.find(request.response_id, principal_.id))
            return live_.stop(*response, runtime::StopReason::cancelled);
        if (has_ended(request.response_id)) return;
        cancels_.emplace(next_ticket_, request);
        actions_.push_back(FindStored{next_ticket_++, request.response_id});
        return;
    }
    const auto found = lanes_.find(request.stream_id.value_or(""));
    if (found == lanes_.end()) {
        if (!request.stream_id) return;
        return report(no_lane(*request.stream_id), request.event_id, request.stream_id);
    }
    Lane& lane = found->second;
    if (lane.work) {
        stop(*lane.work, runtime::StopReason::cancelled);
    } else if (!lane.waiting.empty()) {
        lane.waiting.front().cancelled = true;
    }
}

void Session::ping(std::string t_json) {
    const std::size_t bytes = kControlEventBytes + t_json.size();
    tell({.stream_id = {}, .sequence_number = 0, .body = Pong{std::move(t_json)}}, bytes);
}

void Session::steer(std::optional<std::string> stream_id, std::string response_id,
                    std::string event_id) {
    const std::size_t bytes = kControlEventBytes + response_id.size() + event_id.size();
    tell({.stream_id = std::move(stream_id),
          .sequence_number = 0,
          .body = SteerFailed{std::move(response_id), std::move(event_id)}},
         bytes);
}

void Session::report(RequestError error, std::string event_id,
                     std::optional<std::string> stream_id) {
    const std::size_t bytes = kControlEventBytes + error.message.size() + event_id.size();
    tell({.stream_id = std::move(stream_id),
          .sequence_number = 0,
          .body = ErrorEvent{std::move(error), std::move(event_id)}},
         bytes);
}

void Session::tell(ServerEvent event, std::size_t bytes) {
    if (gone_) return;
    control_.push_back({std::move(event), bytes});
    control_bytes_ += bytes;
}

// ---- lanes --------------------------------------------------------------------------------------

Session::Lane* Session::lane_for(const std::optional<std::string>& stream_id) {
    const std::string name = stream_id.value_or("");
    const auto found = lanes_.find(name);
    if (found != lanes_.end()) return &found->second;
    const std::size_t named = lanes_.size() - lanes_.count("");
    if (!name.empty() && named >= limits_.named_lanes_max && !forget_an_idle_lane()) return nullptr;
    return &lanes_[name];
}

// A lane that has ended its work lives on only as something to chain from: the one that was used
// least recently makes room.
bool Session::forget_an_idle_lane() {
    auto oldest = lanes_.end();
    for (auto lane = lanes_.begin(); lane != lanes_.end(); ++lane) {
        if (lane->first.empty() || lane->second.work || !lane->second.waiting.empty()) continue;
        if (oldest == lanes_.end() || lane->second.last_use < oldest->second.last_use)
            oldest = lane;
    }
    if (oldest == lanes_.end()) return false;
    lanes_.erase(oldest);
    return true;
}

Session::Lane* Session::next_lane_to_start() {
    Lane* next = nullptr;
    for (auto& [name, lane] : lanes_) {
        if (lane.work || lane.waiting.empty()) continue;
        const Waiting& head = lane.waiting.front();
        const bool is_refusal = std::holds_alternative<ErrorEvent>(head.what);
        if (!is_refusal && in_flight_ >= limits_.in_flight_max) continue;
        if (next == nullptr || head.arrival < next->waiting.front().arrival) next = &lane;
    }
    return next;
}

void Session::start_waiting() {
    while (Lane* lane = next_lane_to_start()) {
        Waiting next = std::move(lane->waiting.front());
        lane->waiting.pop_front();
        --queued_;
        if (auto* refusal = std::get_if<ErrorEvent>(&next.what)) {
            const auto name = std::find_if(lanes_.begin(), lanes_.end(), [lane](const auto& entry) {
                                  return &entry.second == lane;
                              })->first;
            report(std::move(refusal->error), std::move(refusal->event_id),
                   name.empty() ? std::nullopt : std::optional(name));
        } else {
            start(*lane, std::move(next));
        }
    }
}

void Session::start(Lane& lane, Waiting next) {
    lane.work = std::make_unique<Work>();
    ++in_flight_;
    Work& work = *lane.work;
    work.cancelled = next.cancelled;
    work.ticket = next_ticket_++;
    if (auto* create = std::get_if<CreateRequest>(&next.what)) {
        work.what = std::move(*create);
        start_create(lane);
    } else {
        work.what = std::move(std::get<ResumeRequest>(next.what));
        start_resume(lane);
    }
}

void Session::start_create(Lane& lane) {
    Work& work = *lane.work;
    const std::string& previous_id = std::get<CreateRequest>(work.what).previous_response_id;
    if (previous_id.empty()) return prepare(work);
    work.before = latest_turn(previous_id);
    if (work.before) return prepare(work);
    actions_.push_back(FindStored{work.ticket, previous_id});
}

void Session::prepare(Work& work) {
    const auto& request = std::get<CreateRequest>(work.what);
    actions_.push_back(PreparePrompt{
        .ticket = work.ticket,
        .messages = conversation(request.instructions, work.before.get(), request.input),
        .fit = {.drop_old_turns = request.drop_old_turns,
                .answer_tokens = request.params.max_tokens}});
}

void Session::start_resume(Lane& lane) {
    Work& work = *lane.work;
    const auto& request = std::get<ResumeRequest>(work.what);
    const auto response = live_.find(request.response_id, principal_.id);
    if (!response) {
        actions_.push_back(FindStored{work.ticket, request.response_id});
        return;
    }
    if (request.next_sequence > response->log.events())
        return fail_before_created(
            lane, {.status = 400,
                   .code = "invalid_parameter",
                   .message = fmt::format("starting_after is {}, but the response has {} events.",
                                          request.next_sequence - 1, response->log.events()),
                   .param = "starting_after"});
    live_.join(*response, self_);
    work.response = response;
    work.next_sequence = request.next_sequence;
    // Who has seen all of it is told the end once more.
    if (response->log.ended())
        work.next_sequence = std::min(work.next_sequence, response->log.events() - 1);
    work.snapshot_due = request.snapshot && response->log.events() > 0;
}

void Session::fail_before_created(Lane& lane, RequestError error) {
    const Work work = std::move(*lane.work);
    lane.work.reset();
    --in_flight_;
    if (const auto* create = std::get_if<CreateRequest>(&work.what)) {
        forget(create->previous_response_id);
        return report(std::move(error), create->event_id, create->stream_id);
    }
    const auto& resume = std::get<ResumeRequest>(work.what);
    report(std::move(error), resume.event_id, resume.stream_id);
}

// ---- from the shell -----------------------------------------------------------------------------

Session::Lane* Session::lane_of_ticket(std::uint64_t ticket) {
    const auto found = std::find_if(lanes_.begin(), lanes_.end(), [ticket](const auto& entry) {
        return entry.second.work && entry.second.work->ticket == ticket;
    });
    return found == lanes_.end() ? nullptr : &found->second;
}

void Session::prepared(PreparedPrompt prompt) {
    Lane* lane = lane_of_ticket(prompt.ticket);
    if (gone_ || lane == nullptr) return;
    if (prompt.error) {
        fail_before_created(*lane, std::move(*prompt.error));
        return start_waiting();
    }
    Work& work = *lane->work;
    NewResponse made;
    made.initial.id = "resp_" + prompt.id_suffix;
    made.initial.item_id = "msg_" + prompt.id_suffix;
    made.initial.created_at = prompt.unix_seconds;
    made.initial.dropped_messages = prompt.dropped_messages;
    made.initial.system_in_user = prompt.system_in_user;
    made.request = std::get<CreateRequest>(work.what);
    made.before = work.before;
    made.principal = principal_;
    made.request_id = prompt.request;
    made.prompt = std::move(prompt.tokens);
    work.response = work.cancelled ? live_.start_cancelled(std::move(made), tokenizer_, self_,
                                                           prompt.unix_seconds)
                                   : live_.start(std::move(made), tokenizer_, self_);
}

void Session::found(std::uint64_t ticket, const StoredResponse* stored) {
    if (gone_) return;
    if (const auto cancel = cancels_.find(ticket); cancel != cancels_.end()) {
        const CancelRequest request = std::move(cancel->second);
        cancels_.erase(cancel);
        if (stored != nullptr) return;
        return report(response_not_found(request.response_id), request.event_id, request.stream_id);
    }
    Lane* lane = lane_of_ticket(ticket);
    if (lane == nullptr) return;
    Work& work = *lane->work;
    if (const auto* create = std::get_if<CreateRequest>(&work.what)) {
        if (stored != nullptr) {
            work.before = stored->turn;
            return prepare(work);
        }
        fail_before_created(*lane, previous_response_not_found(create->previous_response_id));
        return start_waiting();
    }
    const auto& resume = std::get<ResumeRequest>(work.what);
    if (stored != nullptr) {
        work.stored_end = ServerEvent{.stream_id = {},
                                      .sequence_number = stored->last_sequence,
                                      .body = StoredEnd{stored->completed, stored->json}};
        return;
    }
    fail_before_created(*lane, response_not_found(resume.response_id));
    start_waiting();
}

std::shared_ptr<const Turn> Session::latest_turn(std::string_view response_id) const {
    for (const auto& [name, lane] : lanes_) {
        if (lane.latest && lane.latest->id == response_id) return lane.latest->turn;
    }
    return nullptr;
}

void Session::forget(std::string_view response_id) {
    if (response_id.empty()) return;
    for (auto& [name, lane] : lanes_) {
        if (lane.latest && lane.latest->id == response_id) lane.latest.reset();
    }
}

bool Session::has_ended(std::string_view response_id) const {
    return std::find(recent_ids_.begin(), recent_ids_.end(), response_id) != recent_ids_.end();
}

void Session::stop(Work& work, runtime::StopReason reason) {
    if (work.response) {
        live_.stop(*work.response, reason);
    } else {
        work.cancelled = true;
    }
}

void Session::disconnect() {
    if (gone_) return;
    gone_ = true;
    for (auto& [name, lane] : lanes_) {
        if (lane.work && lane.work->response) live_.leave(*lane.work->response, self_);
    }
    lanes_.clear();
    cancels_.clear();
    control_.clear();
    control_bytes_ = 0;
    in_flight_ = 0;
    queued_ = 0;
}

void Session::drain() {
    draining_ = true;
    for (auto& [name, lane] : lanes_) {
        for (Waiting& waiting : lane.waiting) {
            if (auto* request = std::get_if<CreateRequest>(&waiting.what)) {
                std::string event_id = std::move(request->event_id);
                waiting.what = ErrorEvent{shutting_down_error(), std::move(event_id)};
            } else if (auto* resume = std::get_if<ResumeRequest>(&waiting.what)) {
                std::string event_id = std::move(resume->event_id);
                waiting.what = ErrorEvent{shutting_down_error(), std::move(event_id)};
            }
        }
    }
    start_waiting();
}

std::vector<SessionAction> Session::take_actions() {
    return std::exchange(actions_, {});
}

// ---- to the client ------------------------------------------------------------------------------

bool Session::next_event(ServerEvent& out) {
    if (!control_.empty()) {
        Control& next = control_.front();
        out = std::move(next.event);
        control_bytes_ -= next.bytes;
        control_.pop_front();
        return true;
    }
    auto lane = lanes_.upper_bound(last_served_);
    for (std::size_t left = lanes_.size(); left > 0; --left, ++lane) {
        if (lane == lanes_.end()) lane = lanes_.begin();
        if (!next_of(lane->second, out)) continue;
        last_served_ = lane->first;
        return true;
    }
    return false;
}

bool Session::next_of(Lane& lane, ServerEvent& out) {
    if (!lane.work) return false;
    Work& work = *lane.work;
    bool last = false;
    if (work.stored_end) {
        out = std::move(*work.stored_end);
        last = true;
    } else if (work.response) {
        ResponseLog& log = work.response->log;
        if (std::exchange(work.snapshot_due, false)) {
            out = log.snapshot();
            work.next_sequence = out.sequence_number;
        } else if (!log.event(work.next_sequence, out)) {
            return false;
        }
        ++work.next_sequence;
        last = log.ended() && work.next_sequence == log.events();
    } else {
        return false;
    }
    out.stream_id = std::visit([](const auto& w) { return w.stream_id; }, work.what);
    if (last) end_work(lane);
    return true;
}

// All is told: what may be continued is remembered, what failed takes the id that it continued
// with it.
void Session::end_work(Lane& lane) {
    const std::unique_ptr<Work> work = std::move(lane.work);
    --in_flight_;
    if (const auto& response = work->response) {
        if (recent_ids_.size() == kRecentIdsMax) recent_ids_.erase(recent_ids_.begin());
        recent_ids_.push_back(response->log.id());
        if (!response->log.failed()) {
            lane.latest = Latest{response->log.id(), response->turn};
        } else if (const auto* create = std::get_if<CreateRequest>(&work->what)) {
            forget(create->previous_response_id);
        }
        live_.leave(*response, self_);
    }
    start_waiting();
}

bool Session::idle() const {
    return in_flight_ == 0 && queued_ == 0 && control_.empty();
}

std::size_t Session::pending_bytes() const {
    std::size_t bytes = control_bytes_;
    for (const auto& [name, lane] : lanes_) {
        if (lane.work && lane.work->response)
            bytes += lane.work->response->log.pending_bytes(lane.work->next_sequence);
    }
    return bytes;
}

}  // namespace troupe::actors
