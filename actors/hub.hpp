// The post office of one io thread: sessions register here, and what the scheduler delivers is
// routed to them by plain calls. Owns nothing of theirs: a session that is gone is counted and its
// events dropped. Owns the thread's live responses and its part of the archive. Everything runs on
// the hub's io thread; sends Submit and Cancel to the scheduler, puts and finds to the storage.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "actors/limits.hpp"
#include "actors/live_responses.hpp"
#include "actors/messages.hpp"
#include "actors/rate_limits.hpp"
#include "actors/response_archive.hpp"
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
    // After the last event of a delivery that held some for this session, or for a response that it
    // reads; and when such a response is kept at last.
    virtual void on_delivered() = 0;
    // The server is going down: refuse what is new, let what runs go on.
    virtual void on_shutdown() = 0;
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
[[nodiscard]] std::int64_t system_unix_seconds();
[[nodiscard]] runtime::TimePoint system_now();

// The response object of protocol.md as JSON: the archive keeps what clients read.
using ResponseWriter = std::function<std::string(const Response&)>;

struct HubSettings {
    std::uint32_t index = 0;                  // among the hubs, below 2^16
    std::size_t recent_responses_max = 4096;  // of the archive, in memory
    std::size_t recent_bytes_max = std::size_t{256} << 20;
    std::size_t requests_live_max = limits::kRequestsLiveMax;
    LiveLimits live = {};
    ResponseWriter write_response = {};  // needed by whoever has sessions
    std::function<std::int64_t()> unix_seconds = system_unix_seconds;
    std::function<runtime::TimePoint()> now = system_now;
    RandomSource random = system_random;
    std::optional<runtime::Address<StorageMessage>> storage = {};
};

class SessionHub final : private LiveResponses::Outside {
 public:
    SessionHub(HubSettings settings, runtime::Address<SchedulerMessage> scheduler,
               OffloadFunction offload);
    SessionHub(const SessionHub&) = delete;
    SessionHub& operator=(const SessionHub&) = delete;
    ~SessionHub() override;

    [[nodiscard]] SessionId join(SessionHandler& handler);
    void leave(SessionId session);

    // Ids are unique among hubs: the hub's index stands in the upper 16 bits.
    [[nodiscard]] RequestId next_request();
    [[nodiscard]] SessionRef address_of(SessionId session) const {
        return {settings_.index, session};
    }

    // Whether `principal` may submit `requests` more: what live requests of all hubs may be is a
    // bound of the scheduler's mailbox (limits.hpp), shared out between the hubs, and keys may have
    // rates. The error, 429, says when to try again.
    [[nodiscard]] std::optional<RequestError> refuse(const Principal& principal,
                                                     std::uint32_t requests);
    [[nodiscard]] RateLimits::State rates(const Principal& principal) {
        return rates_.state(principal, now());
    }
    void submit(Submit submit) override;
    void cancel(RequestId request) override;

    // Runs `work` on a helper thread, then `done` here if the session has not left by then. At most
    // kOffloadJobsMax are with the helpers at once; the others wait here, first in, first out, and
    // are dropped when their session leaves. Sessions bound them: each has so many in flight.
    void offload(SessionId session, std::function<void()> work, std::function<void()> done);

    [[nodiscard]] RandomBits random() { return settings_.random(); }
    [[nodiscard]] std::string random_hex();  // 32 hexadecimal digits
    [[nodiscard]] std::int64_t unix_seconds() const { return settings_.unix_seconds(); }
    [[nodiscard]] runtime::TimePoint now() const { return settings_.now(); }

    [[nodiscard]] LiveResponses& live() { return live_; }
    // As the archive's, but nobody calls back into a session that has left by then.
    void find_stored(SessionId asker, std::string_view id, std::uint64_t principal,
                     ResponseArchive::Found found);
    void erase_stored(SessionId asker, std::string_view id, std::uint64_t principal,
                      ResponseArchive::Done done);

    // The messages of the mailbox.
    void on(const Delivery& delivery);
    void on(const HubShutdown& shutdown);
    void on(const StorageReply& reply) { archive_.on(reply); }

    // Once a second or so.
    void tick(runtime::TimePoint now) { live_.tick(now); }

    [[nodiscard]] bool draining() const { return draining_; }
    [[nodiscard]] std::size_t requests_live() const { return principals_.size(); }
    // On whose account a live request is; nullptr where it is none.
    [[nodiscard]] const Principal* principal_of(RequestId request) const;
    [[nodiscard]] std::size_t session_count() const { return sessions_.size(); }
    [[nodiscard]] std::uint64_t events_dropped() const { return events_dropped_; }

 private:
    struct Job {
        SessionId session = 0;
        std::function<void()> work;
        std::function<void()> done;
    };

    void start_jobs();
    void settle(RequestId request, const Usage& usage);
    [[nodiscard]] Keeping keep(EndedResponse ended) override;
    void wake(std::vector<SessionId>& touched);

    const HubSettings settings_;
    const runtime::Address<SchedulerMessage> scheduler_;
    const OffloadFunction offload_;
    LiveResponses live_;
    ResponseArchive archive_;
    std::unordered_map<SessionId, SessionHandler*> sessions_;
    std::vector<SessionId> touched_;  // by the delivery being routed; reused
    std::deque<Job> jobs_waiting_;
    std::size_t jobs_running_ = 0;
    SessionId next_session_ = 1;
    RequestId next_request_ = 1;
    RateLimits rates_;
    std::unordered_map<RequestId, Principal> principals_;  // of requests without a terminal event
    std::uint64_t events_dropped_ = 0;
    bool draining_ = false;
};

// The shell: until the mailbox is closed, every message goes to the hub.
[[nodiscard]] boost::asio::awaitable<void> run_hub(runtime::Lane& lane, SessionHub& hub,
                                                   runtime::Mailbox<HubMessage>& inbox);

}  // namespace troupe::actors
