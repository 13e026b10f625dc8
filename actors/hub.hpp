// The post office of one io thread: sessions register here, and what the scheduler delivers is
// routed to them by plain calls. Owns nothing of theirs: a session that is gone is counted and its
// events dropped. Everything runs on the hub's io thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "actors/limits.hpp"
#include "actors/messages.hpp"
#include "actors/response_store.hpp"
#include "runtime/address.hpp"
#include "runtime/lane.hpp"
#include "runtime/mailbox.hpp"
#include "runtime/offload.hpp"

namespace troupe::actors {

// What the hub calls. A handler may leave the hub, or be destroyed, inside any of these calls.
class SessionHandler {
 public:
    virtual ~SessionHandler() = default;
    // One event of `delivery` for this session.
    virtual void on_event(const SessionEvent& event, const Delivery& delivery) = 0;
    // After the last event of a delivery that held some for this session.
    virtual void on_delivered() = 0;
    // The server is going down: refuse what is new, let what runs go on.
    virtual void on_shutdown() = 0;
    // Cancels a live response that `principal` owns; false where the session has no such response.
    virtual bool cancel_response(std::string_view response_id, std::uint64_t principal) = 0;
};

// Jobs of one hub that are with the helpers at once: what runtime::Offload must have room for.
inline constexpr std::size_t kOffloadJobsMax = 32;

// Runs `work` on another thread, then `done` on the hub's io thread, always later than the call.
using OffloadFunction = std::function<void(std::function<void()> work, std::function<void()> done)>;

// The real one: through `offload`, back on `lane`, the hub's. Both must outlive the function.
[[nodiscard]] OffloadFunction offload_from(runtime::Lane& lane, runtime::Offload& offload);

// 128 bits from the system's generator, or a test's sequence.
struct RandomBits {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
};
using RandomSource = std::function<RandomBits()>;
[[nodiscard]] RandomBits system_random();

class SessionHub {
 public:
    SessionHub(std::uint32_t index, runtime::Address<SchedulerMessage> scheduler,
               OffloadFunction offload, std::size_t stored_max, std::size_t stored_bytes_max,
               RandomSource random = system_random,
               std::size_t requests_live_max = limits::kRequestsLiveMax);
    SessionHub(const SessionHub&) = delete;
    SessionHub& operator=(const SessionHub&) = delete;
    ~SessionHub();

    [[nodiscard]] SessionId join(SessionHandler& handler);
    void leave(SessionId session);

    // Ids are unique among hubs: the hub's index stands in the upper 16 bits.
    [[nodiscard]] RequestId next_request();
    [[nodiscard]] SessionRef address_of(SessionId session) const { return {index_, session}; }

    // Whether `requests` more may be submitted: what live requests of all hubs may be is a bound of
    // the scheduler's mailbox (limits.hpp), shared out between the hubs.
    [[nodiscard]] bool has_room(std::size_t requests) const {
        return requests_live_ + requests <= requests_live_max_;
    }
    void submit(Submit submit);
    void cancel(RequestId request);

    // Runs `work` on a helper thread, then `done` here if the session has not left by then. At most
    // kOffloadJobsMax are with the helpers at once; the others wait here, first in, first out, and
    // are dropped when their session leaves. Sessions bound them: each has so many in flight.
    void offload(SessionId session, std::function<void()> work, std::function<void()> done);

    [[nodiscard]] RandomBits random() { return random_(); }
    [[nodiscard]] std::string random_hex();  // 32 hexadecimal digits
    [[nodiscard]] ResponseStore& responses() { return responses_; }

    // Asks every session; false where none has such a response, or another principal owns it.
    bool cancel_response(std::string_view response_id, std::uint64_t principal);

    // The messages of the mailbox.
    void on(const Delivery& delivery);
    void on(const HubShutdown& shutdown);

    [[nodiscard]] bool draining() const { return draining_; }
    [[nodiscard]] std::size_t requests_live() const { return requests_live_; }
    [[nodiscard]] std::size_t session_count() const { return sessions_.size(); }
    [[nodiscard]] std::uint64_t events_dropped() const { return events_dropped_; }

 private:
    struct Job {
        SessionId session = 0;
        std::function<void()> work;
        std::function<void()> done;
    };

    void start_jobs();

    const std::uint32_t index_;
    const runtime::Address<SchedulerMessage> scheduler_;
    const OffloadFunction offload_;
    const RandomSource random_;
    const std::size_t requests_live_max_;
    ResponseStore responses_;
    std::unordered_map<SessionId, SessionHandler*> sessions_;
    std::vector<SessionId> touched_;  // by the delivery being routed; reused
    std::deque<Job> jobs_waiting_;
    std::size_t jobs_running_ = 0;
    SessionId next_session_ = 1;
    RequestId next_request_ = 1;
    std::size_t requests_live_ = 0;  // submitted, terminal event not yet here
    std::uint64_t events_dropped_ = 0;
    bool draining_ = false;
};

// The shell: until the mailbox is closed, every message goes to the hub.
[[nodiscard]] boost::asio::awaitable<void> run_hub(SessionHub& hub,
                                                   runtime::Mailbox<HubMessage>& inbox);

}  // namespace troupe::actors
