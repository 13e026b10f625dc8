#include "actors/live_responses.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::actors {

LiveResponsePtr LiveResponses::add(NewResponse& made, const model::Tokenizer& tokenizer,
                                   SessionId reader) {
    CreateRequest& request = made.request;
    made.initial.settings = std::make_shared<const ResponseSettings>(
        ResponseSettings{.previous_response_id = request.previous_response_id,
                         .params = request.params,
                         .store = request.store,
                         .drop_old_turns = request.drop_old_turns,
                         .background = request.background,
                         .echoed = std::move(request.echoed)});
    ResponseLog log(std::move(made.initial), request.event_id, request.generate,
                    Generation(tokenizer, request.params));
    auto response = std::make_shared<LiveResponse>(std::move(log), request);
    response->principal = made.principal.id;
    response->request = made.request_id;
    response->stop = runtime::StopFlag::make();
    response->before = std::move(made.before);
    response->readers.push_back(reader);
    const bool added = by_id_.emplace(response->log.id(), response).second;
    TROUPE_ASSERT(added, "response ids are unique");
    return response;
}

LiveResponsePtr LiveResponses::start(NewResponse made, const model::Tokenizer& tokenizer,
                                     SessionId reader) {
    auto response = add(made, tokenizer, reader);
    by_request_.emplace(made.request_id, response);
    Submit submit;
    submit.reply_to = self_;
    submit.request = made.request_id;
    submit.prompt = std::move(made.prompt);
    submit.params = std::move(made.request.params);
    submit.principal = made.principal;
    submit.cache_salt = made.principal.id;
    submit.prefill_only = !made.request.generate;
    submit.deadline = made.request.deadline;
    submit.stop = response->stop;
    outside_.submit(std::move(submit));
    return response;
}

LiveResponsePtr LiveResponses::start_cancelled(NewResponse made, const model::Tokenizer& tokenizer,
                                               SessionId reader, std::int64_t unix_seconds) {
    auto response = add(made, tokenizer, reader);
    response->log.abandon(unix_seconds);
    ended(*response);
    return response;
}

LiveResponsePtr LiveResponses::find(std::string_view id, std::uint64_t principal) const {
    const auto found = by_id_.find(id);
    if (found == by_id_.end() || found->second->principal != principal) return nullptr;
    return found->second;
}

// ---- readers ------------------------------------------------------------------------------------

void LiveResponses::set_alone(LiveResponse& response, bool alone) {
    if (response.alone == alone) return;
    response.alone = alone;
    response.alone_since.reset();
    if (alone) {
        ++alone_of_[response.principal];
    } else if (--alone_of_[response.principal] == 0) {
        alone_of_.erase(response.principal);
    }
}

void LiveResponses::join(LiveResponse& response, SessionId reader) {
    response.readers.push_back(reader);
    ++joined_;
    set_alone(response, false);
}

void LiveResponses::leave(LiveResponse& response, SessionId reader) {
    const auto entry = std::find(response.readers.begin(), response.readers.end(), reader);
    TROUPE_ASSERT(entry != response.readers.end(), "who leaves has joined");
    response.readers.erase(entry);
    if (!response.readers.empty()) return;
    if (response.log.ended()) {
        if (!response.store) by_id_.erase(response.log.id());
        return;
    }
    set_alone(response, true);
    if (!response.store || alone_of_[response.principal] > limits_.alone_max)
        stop(response, runtime::StopReason::disconnected);
}

void LiveResponses::stop(LiveResponse& response, runtime::StopReason reason) {
    if (!response.log.ended() && response.stop->request(reason)) outside_.cancel(response.request);
}

void LiveResponses::forget(LiveResponse& response) {
    response.store = false;
    if (response.log.held()) response.log.release(false);
    stop(response, runtime::StopReason::cancelled);
    by_id_.erase(response.log.id());
}

// ---- from the scheduler and the storage ---------------------------------------------------------

void LiveResponses::deliver(const SessionEvent& event, const Delivery& delivery,
                            std::int64_t unix_seconds, std::vector<SessionId>& touched) {
    const RequestId request = std::visit([](const auto& e) { return e.request; }, event);
    const auto found = by_request_.find(request);
    if (found == by_request_.end()) return;
    const LiveResponsePtr response = found->second;
    ResponseLog& log = response->log;
    if (const auto* run = std::get_if<TokenRun>(&event)) {
        log.on(*run, delivery);
    } else if (const auto* finished = std::get_if<Finished>(&event)) {
        log.on(*finished, unix_seconds);
    } else if (const auto* rejected = std::get_if<Rejected>(&event)) {
        log.on(*rejected, unix_seconds);
    } else if (const auto* progress = std::get_if<PromptProgress>(&event)) {
        log.on(*progress);
    } else {
        log.on(std::get<Queued>(event));
    }
    if (log.ended()) {
        by_request_.erase(request);
        ended(*response);
    }
    touched.insert(touched.end(), response->readers.begin(), response->readers.end());
}

// What may be continued gets its turn, and is kept if its client wished so.
void LiveResponses::ended(LiveResponse& response) {
    set_alone(response, false);
    response.bytes = response.log.bytes();
    if (!response.log.failed()) {
        Response result = response.log.result();
        response.turn = std::make_shared<const Turn>(Turn{.id = result.id,
                                                          .before = std::move(response.before),
                                                          .input = std::move(response.input),
                                                          .answer = result.text,
                                                          .answered = result.has_output});
        if (response.store) keep(response, std::move(result));
    }
    if (!response.store && response.readers.empty()) by_id_.erase(response.log.id());
}

void LiveResponses::keep(LiveResponse& response, Response result) {
    const Keeping keeping = outside_.keep({.principal = response.principal,
                                           .response = std::move(result),
                                           .last_sequence = response.log.events() - 1,
                                           .turn = response.turn});
    if (keeping == Keeping::pending) {
        response.log.hold();
    } else {
        response.log.release(keeping == Keeping::kept);
    }
}

void LiveResponses::kept(std::string_view id, bool is_kept, std::vector<SessionId>& touched) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return;
    LiveResponse& response = *found->second;
    response.log.release(is_kept);
    touched.insert(touched.end(), response.readers.begin(), response.readers.end());
}

// ---- time ---------------------------------------------------------------------------------------

void LiveResponses::tick(runtime::TimePoint now) {
    for (auto& [id, response] : by_id_) {
        if (response->log.ended()) {
            if (!response->ended_at) response->ended_at = now;
        } else if (response->alone && !response->background) {
            if (!response->alone_since) response->alone_since = now;
            if (now - *response->alone_since >= limits_.grace)
                stop(*response, runtime::StopReason::disconnected);
        }
    }
    trim_replays(now);
}

void LiveResponses::trim_replays(runtime::TimePoint now) {
    std::vector<const LiveResponse*> replays;
    std::size_t bytes = 0;
    for (const auto& [id, response] : by_id_) {
        if (!response->ended_at || !response->readers.empty() || response->log.held()) continue;
        replays.push_back(response.get());
        bytes += response->bytes;
    }
    std::sort(replays.begin(), replays.end(), [](const LiveResponse* a, const LiveResponse* b) {
        return a->ended_at < b->ended_at;
    });
    std::size_t left = replays.size();
    for (const LiveResponse* oldest : replays) {
        const bool fresh = now - *oldest->ended_at < limits_.replay;
        if (fresh && left <= limits_.replays_max && bytes <= limits_.replay_bytes_max) return;
        bytes -= oldest->bytes;
        --left;
        by_id_.erase(oldest->log.id());
    }
}

}  // namespace troupe::actors
