// The core of one Responses connection: lanes, chaining, cancelling, and the order of what the
// client is told. Pure: values in (`create`, `deliver`, ...), actions for the shell and events for
// the client out. Lives on an io thread; its shell sends Submit and Cancel to the scheduler.
//
// A lane (stream_id) is first in, first out and never overlaps: the next create starts when the
// terminal event of the one before it has been asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/response_store.hpp"
#include "actors/session_events.hpp"
#include "actors/session_response.hpp"
#include "model/tokenizer.hpp"

namespace troupe::actors {

class Session {
 public:
    // Store and tokenizer must outlive it.
    Session(SessionRef self, Principal principal, const SessionLimits& limits, ResponseStore& store,
            const model::Tokenizer& tokenizer);

    // What the client asks. A create that cannot be is answered by an error event, in lane order.
    void create(CreateRequest request);
    void refuse_create(std::optional<std::string> stream_id, std::string event_id,
                       RequestError error);
    void cancel(const CancelRequest& request);
    void ping(std::string t_json);
    void steer(std::optional<std::string> stream_id, std::string response_id, std::string event_id);
    // An error that belongs to no lane; overtakes data.
    void report(RequestError error, std::string event_id,
                std::optional<std::string> stream_id = std::nullopt);

    // What the shell and the scheduler answer. `unix_seconds` is now.
    void prepared(PreparedPrompt prompt);
    void deliver(const SessionEvent& event, const Delivery& delivery, std::int64_t unix_seconds);

    // The client is gone: everything is cancelled, nothing more is told.
    void disconnect();
    // No new creates; what runs goes on, what waits is refused.
    void drain();

    // What the shell has to do, in order; look after every call above and after next_event().
    [[nodiscard]] std::vector<SessionAction> take_actions();

    // The next event for the client. Responses take turns.
    [[nodiscard]] std::optional<ServerEvent> next_event();

    // Cancels a live response by id; false where there is none.
    bool cancel_response(std::string_view response_id);

    // Who this is; may change once, by a late authentication, while nothing is in flight.
    void set_principal(Principal principal);

    [[nodiscard]] bool idle() const;
    [[nodiscard]] std::size_t pending_bytes() const;
    [[nodiscard]] std::size_t in_flight() const { return in_flight_; }
    [[nodiscard]] std::size_t queued() const { return queued_; }

 private:
    struct Waiting {
        std::uint64_t arrival = 0;
        std::variant<CreateRequest, ErrorEvent> what;
        bool cancelled = false;
    };

    // A create at work: first its prompt is prepared, then it has a response.
    struct Work {
        CreateRequest request;
        std::uint64_t ticket = 0;
        std::shared_ptr<const Turn> before;
        bool cancelled = false;
        RequestId request_id = 0;
        runtime::SharedStopFlag stop;
        std::optional<SessionResponse> response;
    };

    struct Lane {
        std::deque<Waiting> waiting;
        std::unique_ptr<Work> work;
        std::optional<StoredResponse> latest;  // to chain from, stored or not
        std::uint64_t last_use = 0;
    };
    using Lanes = std::map<std::string, Lane, std::less<>>;  // the default lane is ""

    [[nodiscard]] Lane* lane_for(const std::optional<std::string>& stream_id);
    [[nodiscard]] bool forget_an_idle_lane();
    void start_waiting();
    [[nodiscard]] Lane* next_lane_to_start();
    void start(Lane& lane, CreateRequest request, bool cancelled);
    void begin_response(Work& work, PreparedPrompt prompt);
    void fail_before_created(Lane& lane, RequestError error);
    void remember(Lane& lane);
    void stop(Work& work, runtime::StopReason reason);
    void tell(ServerEvent event, std::size_t bytes);
    [[nodiscard]] const StoredResponse* find_previous(std::string_view id) const;
    void forget(std::string_view response_id);
    [[nodiscard]] bool has_ended(std::string_view response_id) const;
    [[nodiscard]] std::optional<ServerEvent> next_of(Lane& lane);

    const SessionRef self_;
    Principal principal_;
    const SessionLimits limits_;
    ResponseStore& store_;
    const model::Tokenizer& tokenizer_;

    Lanes lanes_;
    std::string last_served_;  // the lane whose response had the last turn
    struct Control {
        ServerEvent event;
        std::size_t bytes = 0;
    };
    std::deque<Control> control_;  // told before data
    std::size_t control_bytes_ = 0;
    std::deque<std::string> recent_ids_;  // responses that ended: cancelling them is no error
    std::vector<SessionAction> actions_;
    std::size_t in_flight_ = 0;
    std::size_t queued_ = 0;
    std::uint64_t next_ticket_ = 1;
    std::uint64_t next_arrival_ = 1;
    bool draining_ = false;
    bool gone_ = false;
};

}  // namespace troupe::actors
