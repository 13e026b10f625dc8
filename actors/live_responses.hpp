// The responses of one hub that are at work, or ended a short while ago, whoever reads them. A
// response belongs to nobody's connection: readers come and go, and one that its client wished kept
// goes on for a while without any. Pure core, on an io thread; the hub feeds it deliveries and time
// and does what it asks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "actors/response_log.hpp"
#include "actors/session_events.hpp"
#include "actors/stored_response.hpp"
#include "runtime/clock.hpp"
#include "runtime/stop_flag.hpp"

namespace troupe::actors {

struct LiveLimits {
    std::chrono::seconds grace{15};    // that a stored response goes on without a reader
    std::chrono::seconds replay{300};  // that its events can be had again after its end
    std::size_t replays_max = 1024;    // ended ones; beyond, the oldest goes
    std::size_t replay_bytes_max = std::size_t{64} << 20;
    std::size_t alone_max = 64;  // of one principal, at work without a reader
};

struct LiveResponse {
    LiveResponse(ResponseLog events, const CreateRequest& create)
        : log(std::move(events)),
          input(create.input),
          store(create.store),
          background(create.background) {}

    ResponseLog log;
    std::uint64_t principal = 0;
    RequestId request = 0;
    runtime::SharedStopFlag stop;
    std::shared_ptr<const Turn> before;
    std::vector<model::ChatMessage> input;  // until the end: then it is the turn's
    bool store = true;
    bool background = false;
    std::shared_ptr<const Turn> turn;               // after the end, unless it failed
    std::vector<SessionId> readers;                 // one entry a reader
    bool alone = false;                             // at work without a reader
    std::optional<runtime::TimePoint> alone_since;  // as of the first tick that saw it
    std::optional<runtime::TimePoint> ended_at;     // the same
    std::size_t bytes = 0;                          // of the log, after the end
};
using LiveResponsePtr = std::shared_ptr<LiveResponse>;

// What makes a response: a create whose prompt is ready.
struct NewResponse {
    Response initial;
    CreateRequest request;
    std::shared_ptr<const Turn> before;
    Principal principal;
    RequestId request_id = 0;
    std::vector<model::TokenId> prompt;
};

// A response that ended well enough to be kept.
struct EndedResponse {
    std::uint64_t principal = 0;
    Response response;
    std::uint64_t last_sequence = 0;
    std::shared_ptr<const Turn> turn;
};

class LiveResponses {
 public:
    // What it needs done: the hub's part, or a test's.
    class Outside {
     public:
        virtual ~Outside() = default;
        virtual void submit(Submit submit) = 0;
        virtual void cancel(RequestId request) = 0;
        // Where that is pending, kept() is called later.
        [[nodiscard]] virtual Keeping keep(EndedResponse ended) = 0;
    };

    // Events of its requests are addressed to `self`. Both references must outlive it.
    LiveResponses(SessionRef self, Outside& outside, const LiveLimits& limits)
        : self_(self), outside_(outside), limits_(limits) {}

    // Begins a response that `reader` reads and submits its request.
    [[nodiscard]] LiveResponsePtr start(NewResponse made, const model::Tokenizer& tokenizer,
                                        SessionId reader);
    // The same for one that was cancelled before it was submitted: it ends at once.
    [[nodiscard]] LiveResponsePtr start_cancelled(NewResponse made,
                                                  const model::Tokenizer& tokenizer,
                                                  SessionId reader, std::int64_t unix_seconds);

    // Null where there is none, or another principal owns it.
    [[nodiscard]] LiveResponsePtr find(std::string_view id, std::uint64_t principal) const;

    void join(LiveResponse& response, SessionId reader);
    // A reader is done, or gone. With the last one a response that nobody wished kept is cancelled.
    void leave(LiveResponse& response, SessionId reader);

    void stop(LiveResponse& response, runtime::StopReason reason);
    // The response is not to be kept, nor found again; if it is at work, it is cancelled.
    void forget(LiveResponse& response);

    // Adds the readers of what it concerns to `touched`.
    void deliver(const SessionEvent& event, const Delivery& delivery, std::int64_t unix_seconds,
                 std::vector<SessionId>& touched);
    // The answer to Outside::keep().
    void kept(std::string_view id, bool is_kept, std::vector<SessionId>& touched);

    // Once a second or so: ends what has been alone for too long, forgets old replays.
    void tick(runtime::TimePoint now);

    [[nodiscard]] std::size_t size() const { return by_id_.size(); }
    // Readers that have come (back) to a response since the start.
    [[nodiscard]] std::uint64_t joined() const { return joined_; }

 private:
    [[nodiscard]] LiveResponsePtr add(NewResponse& made, const model::Tokenizer& tokenizer,
                                      SessionId reader);
    void ended(LiveResponse& response);
    void keep(LiveResponse& response, Response result);
    void set_alone(LiveResponse& response, bool alone);
    void trim_replays(runtime::TimePoint now);

    const SessionRef self_;
    Outside& outside_;
    const LiveLimits limits_;
    std::unordered_map<std::string_view, LiveResponsePtr> by_id_;  // keys: the logs' own ids
    std::unordered_map<RequestId, LiveResponsePtr> by_request_;    // at work
    std::unordered_map<std::uint64_t, std::size_t> alone_of_;      // principal: how many
    std::uint64_t joined_ = 0;
};

}  // namespace troupe::actors
