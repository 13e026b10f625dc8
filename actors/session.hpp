// The core of one Responses connection: lanes, chaining, cancelling, and the order of what the
// client is told. Pure: values in (`create`, `resume`, ...), actions for the shell and events for
// the client out. Lives on an io thread. The responses themselves are LiveResponses' and may
// outlive it; a session is one of their readers.
//
// A lane (stream_id) is first in, first out and never overlaps: the next create or resume starts
// when the terminal event of the one before it has been asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/live_responses.hpp"
#include "actors/session_events.hpp"
#include "actors/stored_response.hpp"
#include "model/tokenizer.hpp"

namespace troupe::actors {

class Session {
 public:
    // Live responses and tokenizer must outlive it.
    Session(SessionId self, Principal principal, const SessionLimits& limits, LiveResponses& live,
            const model::Tokenizer& tokenizer);

    // What the client asks. What cannot be is answered by an error event, in lane order.
    void create(CreateRequest request);
    void resume(ResumeRequest request);
    void refuse_create(std::optional<std::string> stream_id, std::string event_id,
                       RequestError error);
    void cancel(const CancelRequest& request);
    void ping(std::string t_json);
    void steer(std::optional<std::string> stream_id, std::string response_id, std::string event_id);
    // An error that belongs to no lane; overtakes data.
    void report(RequestError error, std::string event_id,
                std::optional<std::string> stream_id = std::nullopt);

    // What the shell answers. `stored` is null where there is no such response.
    void prepared(PreparedPrompt prompt);
    void found(std::uint64_t ticket, const StoredResponse* stored);

    // The client is gone: nothing more is told, and what nobody wished kept is cancelled.
    void disconnect();
    // No new creates; what runs goes on, what waits is refused.
    void drain();

    // What the shell has to do, in order; look after every call above and after next_event().
    [[nodiscard]] std::vector<SessionAction> take_actions();

    // Tells the next event for the client; false where there is none. Responses take turns.
    [[nodiscard]] bool next_event(ServerEvent& out);

    // Who this is; may change once, by a late authentication, while nothing is in flight.
    void set_principal(Principal principal);

    [[nodiscard]] bool idle() const;
    [[nodiscard]] std::size_t pending_bytes() const;
    [[nodiscard]] std::size_t in_flight() const { return in_flight_; }
    [[nodiscard]] std::size_t queued() const { return queued_; }

 private:
    struct Waiting {
        std::uint64_t arrival = 0;
        std::variant<CreateRequest, ResumeRequest, ErrorEvent> what;
        bool cancelled = false;
    };

    // A create or resume at work: first it is looked up and prepared, then there is something to
    // read.
    struct Work {
        std::variant<CreateRequest, ResumeRequest> what;
        std::uint64_t ticket = 0;
        std::shared_ptr<const Turn> before;
        bool cancelled = false;
        LiveResponsePtr response;
        std::uint64_t next_sequence = 0;
        bool snapshot_due = false;
        std::optional<ServerEvent> stored_end;  // in place of a response: all there is to tell
    };

    // The latest response of a lane, to chain from, stored or not.
    struct Latest {
        std::string id;
        std::shared_ptr<const Turn> turn;
    };

    struct Lane {
        std::deque<Waiting> waiting;
        std::unique_ptr<Work> work;
        std::optional<Latest> latest;
        std::uint64_t last_use = 0;
    };
    using Lanes = std::map<std::string, Lane, std::less<>>;  // the default lane is ""

    // Puts a create or resume into its lane, or says why it cannot be.
    template <class Request>
    void enqueue(Request request);
    [[nodiscard]] Lane* lane_for(const std::optional<std::string>& stream_id);
    [[nodiscard]] bool forget_an_idle_lane();
    void start_waiting();
    [[nodiscard]] Lane* next_lane_to_start();
    void start(Lane& lane, Waiting next);
    void start_create(Lane& lane);
    void start_resume(Lane& lane);
    void prepare(Work& work);
    void fail_before_created(Lane& lane, RequestError error);
    void end_work(Lane& lane);
    [[nodiscard]] Lane* lane_of_ticket(std::uint64_t ticket);
    void stop(Work& work, runtime::StopReason reason);
    void tell(ServerEvent event, std::size_t bytes);
    [[nodiscard]] std::shared_ptr<const Turn> latest_turn(std::string_view response_id) const;
    void forget(std::string_view response_id);
    [[nodiscard]] bool has_ended(std::string_view response_id) const;
    [[nodiscard]] bool next_of(Lane& lane, ServerEvent& out);

    const SessionId self_;
    Principal principal_;
    const SessionLimits limits_;
    LiveResponses& live_;
    const model::Tokenizer& tokenizer_;

    Lanes lanes_;
    std::string last_served_;  // the lane whose response had the last turn
    struct Control {
        ServerEvent event;
        std::size_t bytes = 0;
    };
    std::list<Control> control_;  // told before data; a list or a vector takes nothing while empty
    std::size_t control_bytes_ = 0;
    std::vector<std::string> recent_ids_;  // responses that ended: cancelling them is no error
    std::map<std::uint64_t, CancelRequest> cancels_;  // by ticket: of what may be kept
    std::vector<SessionAction> actions_;
    std::size_t in_flight_ = 0;
    std::size_t queued_ = 0;
    std::uint64_t next_ticket_ = 1;
    std::uint64_t next_arrival_ = 1;
    bool draining_ = false;
    bool gone_ = false;
};

}  // namespace troupe::actors
