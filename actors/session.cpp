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

RequestError response_not_found(std::string message, std::string param) {
    return {.status = 404,
            .code = "response_not_found",
            .message = std::move(message),
            .param = std::move(param)};
}

}  // namespace

Session::Session(SessionRef self, Principal principal, const SessionLimits& limits,
                 ResponseStore& store, const model::Tokenizer& tokenizer)
    : self_(self), principal_(principal), limits_(limits), store_(store), tokenizer_(tokenizer) {}

void Session::set_principal(Principal principal) {
    TROUPE_ASSERT(in_flight_ == 0 && queued_ == 0, "work belongs to the principal who asked");
    principal_ = principal;
}

// ---- from the client ----------------------------------------------------------------------------

void Session::create(CreateRequest request) {
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
        if (cancel_response(request.response_id) || has_ended(request.response_id)) return;
        return report(
            response_not_found(fmt::format("There is no response \"{}\".", request.response_id),
                               "response_id"),
            request.event_id, request.stream_id);
    }
    const auto found = lanes_.find(request.stream_id.value_or(""));
    if (found == lanes_.end()) {
        if (!request.stream_id) return;
        return report(
            response_not_found(fmt::format("There is no response on \"{}\".", *request.stream_id),
                               "stream_id"),
            request.event_id, request.stream_id);
    }
    Lane& lane = found->second;
    if (lane.work) {
        stop(*lane.work, runtime::StopReason::cancelled);
    } else if (!lane.waiting.empty()) {
        lane.waiting.front().cancelled = true;
    }
}

bool Session::cancel_response(std::string_view response_id) {
    for (auto& [name, lane] : lanes_) {
        if (!lane.work || !lane.work->response || lane.work->response->id() != response_id)
            continue;
        stop(*lane.work, runtime::StopReason::cancelled);
        return true;
    }
    return false;
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
        const bool is_create = std::holds_alternative<CreateRequest>(head.what);
        if (is_create && in_flight_ >= limits_.in_flight_max) continue;
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
            start(*lane, std::move(std::get<CreateRequest>(next.what)), next.cancelled);
        }
    }
}

void Session::start(Lane& lane, CreateRequest request, bool cancelled) {
    lane.work = std::make_unique<Work>();
    ++in_flight_;
    Work& work = *lane.work;
    work.request = std::move(request);
    work.cancelled = cancelled;
    work.ticket = next_ticket_++;
    const std::string& previous_id = work.request.previous_response_id;
    if (!previous_id.empty()) {
        const StoredResponse* previous = find_previous(previous_id);
        if (previous == nullptr)
            return fail_before_created(lane, previous_response_not_found(previous_id));
        work.before = previous->turn;
    }
    actions_.push_back(PreparePrompt{
        .ticket = work.ticket,
        .messages = conversation(work.request.instructions, work.before.get(), work.request.input),
        .fit = {.drop_old_turns = work.request.drop_old_turns,
                .answer_tokens = work.request.params.max_tokens}});
}

void Session::fail_before_created(Lane& lane, RequestError error) {
    const CreateRequest request = std::move(lane.work->request);
    lane.work.reset();
    --in_flight_;
    forget(request.previous_response_id);
    report(std::move(error), request.event_id, request.stream_id);
}

// ---- from the shell and the scheduler -----------------------------------------------------------

void Session::prepared(PreparedPrompt prompt) {
    const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&prompt](const auto& entry) {
        return entry.second.work && entry.second.work->ticket == prompt.ticket;
    });
    if (gone_ || found == lanes_.end()) return;
    Lane& lane = found->second;
    if (prompt.error) {
        fail_before_created(lane, std::move(*prompt.error));
        start_waiting();
        return;
    }
    const std::int64_t unix_seconds = prompt.unix_seconds;
    begin_response(*lane.work, std::move(prompt));
    if (!lane.work->cancelled) return;
    lane.work->response->abandon(unix_seconds);
    remember(lane);
}

void Session::begin_response(Work& work, PreparedPrompt prompt) {
    const CreateRequest& request = work.request;
    Response initial;
    initial.id = "resp_" + prompt.id_suffix;
    initial.item_id = "msg_" + prompt.id_suffix;
    initial.created_at = prompt.unix_seconds;
    initial.dropped_messages = prompt.dropped_messages;
    initial.settings = std::make_shared<const ResponseSettings>(
        ResponseSettings{.previous_response_id = request.previous_response_id,
                         .params = request.params,
                         .store = request.store,
                         .drop_old_turns = request.drop_old_turns,
                         .echoed = request.echoed});
    work.request_id = prompt.request;
    work.stop = runtime::StopFlag::make();
    work.response.emplace(std::move(initial), request.stream_id, request.event_id, request.generate,
                          Generation(tokenizer_, request.params));
    if (work.cancelled) return;
    Submit submit;
    submit.reply_to = self_;
    submit.request = prompt.request;
    submit.prompt = std::move(prompt.tokens);
    submit.params = request.params;
    submit.principal = principal_;
    submit.cache_salt = principal_.id;
    submit.prefill_only = !request.generate;
    submit.deadline = request.deadline;
    submit.stop = work.stop;
    actions_.push_back(std::move(submit));
}

void Session::deliver(const SessionEvent& event, const Delivery& delivery,
                      std::int64_t unix_seconds) {
    const RequestId request = std::visit([](const auto& e) { return e.request; }, event);
    const auto found = std::find_if(lanes_.begin(), lanes_.end(), [request](const auto& entry) {
        return entry.second.work && entry.second.work->response &&
               entry.second.work->request_id == request;
    });
    if (gone_ || found == lanes_.end() || found->second.work->response->ended()) return;
    SessionResponse& response = *found->second.work->response;
    if (const auto* run = std::get_if<TokenRun>(&event)) {
        response.on(*run, delivery);
    } else if (const auto* finished = std::get_if<Finished>(&event)) {
        response.on(*finished, unix_seconds);
    } else if (const auto* rejected = std::get_if<Rejected>(&event)) {
        response.on(*rejected, unix_seconds);
    } else if (const auto* progress = std::get_if<PromptProgress>(&event)) {
        response.on(*progress);
    } else {
        response.on(std::get<Queued>(event));
    }
    if (response.ended()) remember(found->second);
}

// The response has ended: what may be continued is kept, what failed takes the id that it
// continued with it.
void Session::remember(Lane& lane) {
    Work& work = *lane.work;
    Response result = work.response->result();
    if (recent_ids_.size() == kRecentIdsMax) recent_ids_.pop_front();
    recent_ids_.push_back(result.id);
    if (work.response->failed()) return forget(work.request.previous_response_id);
    auto turn = std::make_shared<const Turn>(Turn{.before = work.before,
                                                  .input = work.request.input,
                                                  .answer = result.text,
                                                  .answered = result.has_output});
    StoredResponse stored{
        .principal = principal_.id, .response = std::move(result), .turn = std::move(turn)};
    if (work.request.store) store_.put(stored);
    lane.latest = std::move(stored);
}

const StoredResponse* Session::find_previous(std::string_view id) const {
    for (const auto& [name, lane] : lanes_) {
        if (lane.latest && lane.latest->response.id == id) return &*lane.latest;
    }
    return store_.find(id, principal_.id);
}

void Session::forget(std::string_view response_id) {
    if (response_id.empty()) return;
    for (auto& [name, lane] : lanes_) {
        if (lane.latest && lane.latest->response.id == response_id) lane.latest.reset();
    }
}

bool Session::has_ended(std::string_view response_id) const {
    return std::find(recent_ids_.begin(), recent_ids_.end(), response_id) != recent_ids_.end() ||
           store_.find(response_id, principal_.id) != nullptr;
}

void Session::stop(Work& work, runtime::StopReason reason) {
    if (!work.response) {
        work.cancelled = true;
    } else if (!work.response->ended() && work.stop->request(reason)) {
        actions_.push_back(Cancel{work.request_id});
    }
}

void Session::disconnect() {
    if (gone_) return;
    gone_ = true;
    for (auto& [name, lane] : lanes_) {
        if (lane.work) stop(*lane.work, runtime::StopReason::disconnected);
    }
    lanes_.clear();
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
            }
        }
    }
    start_waiting();
}

std::vector<SessionAction> Session::take_actions() {
    return std::exchange(actions_, {});
}

// ---- to the client ------------------------------------------------------------------------------

std::optional<ServerEvent> Session::next_event() {
    if (!control_.empty()) {
        Control next = std::move(control_.front());
        control_.pop_front();
        control_bytes_ -= next.bytes;
        return std::move(next.event);
    }
    auto lane = lanes_.upper_bound(last_served_);
    for (std::size_t left = lanes_.size(); left > 0; --left, ++lane) {
        if (lane == lanes_.end()) lane = lanes_.begin();
        if (auto event = next_of(lane->second)) {
            last_served_ = lane->first;
            return event;
        }
    }
    return std::nullopt;
}

std::optional<ServerEvent> Session::next_of(Lane& lane) {
    if (!lane.work || !lane.work->response) return std::nullopt;
    auto event = lane.work->response->next_event();
    if (lane.work->response->told()) {
        lane.work.reset();
        --in_flight_;
        start_waiting();
    }
    return event;
}

bool Session::idle() const {
    return in_flight_ == 0 && queued_ == 0 && control_.empty();
}

std::size_t Session::pending_bytes() const {
    std::size_t bytes = control_bytes_;
    for (const auto& [name, lane] : lanes_) {
        if (lane.work && lane.work->response) bytes += lane.work->response->pending_bytes();
    }
    return bytes;
}

}  // namespace troupe::actors
