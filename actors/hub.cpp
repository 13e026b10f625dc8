#include "actors/hub.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

SessionId session_of(const SessionEvent& event) {
    return std::visit([](const auto& e) { return e.session; }, event);
}

bool is_terminal(const SessionEvent& event) {
    return std::holds_alternative<Finished>(event) || std::holds_alternative<Rejected>(event);
}

boost::asio::awaitable<void> run_offloaded(runtime::Offload& offload, std::function<void()> work,
                                           std::function<void()> done) {
    // Named, because GCC 12 destroys a temporary with captures twice when it stands in a co_await.
    auto job = [work = std::move(work)] {
        work();
        return true;
    };
    (void)co_await offload.run(std::move(job));
    done();
}

}  // namespace

RandomBits system_random() {
    RandomBits bits;
    const ssize_t got = ::getrandom(&bits, sizeof bits, 0);
    TROUPE_ASSERT(got == static_cast<ssize_t>(sizeof bits), "getrandom() gives what is asked");
    return bits;
}

OffloadFunction offload_from(runtime::Lane& lane, runtime::Offload& offload) {
    return [&lane, &offload](std::function<void()> work, std::function<void()> done) {
        lane.spawn("offload", run_offloaded(offload, std::move(work), std::move(done)));
    };
}

SessionHub::SessionHub(std::uint32_t index, runtime::Address<SchedulerMessage> scheduler,
                       OffloadFunction offload, std::size_t stored_max,
                       std::size_t stored_bytes_max, RandomSource random,
                       std::size_t requests_live_max)
    : index_(index),
      scheduler_(scheduler),
      offload_(std::move(offload)),
      random_(std::move(random)),
      requests_live_max_(requests_live_max),
      responses_(stored_max, stored_bytes_max) {
    TROUPE_ASSERT(index < (1U << 16U), "a hub's index has 16 bits");
}

SessionHub::~SessionHub() {
    TROUPE_ASSERT(sessions_.empty(), "sessions leave before their hub goes");
}

SessionId SessionHub::join(SessionHandler& handler) {
    const SessionId session = next_session_++;
    sessions_.emplace(session, &handler);
    return session;
}

void SessionHub::leave(SessionId session) {
    sessions_.erase(session);
}

RequestId SessionHub::next_request() {
    return (static_cast<RequestId>(index_) << 48U) | next_request_++;
}

void SessionHub::submit(Submit submit) {
    TROUPE_ASSERT(has_room(1), "sessions ask before they submit");
    ++requests_live_;
    scheduler_.send(std::move(submit));
}

void SessionHub::cancel(RequestId request) {
    scheduler_.send_control(Cancel{request});
}

void SessionHub::offload(SessionId session, std::function<void()> work,
                         std::function<void()> done) {
    jobs_waiting_.push_back({session, std::move(work), std::move(done)});
    start_jobs();
}

void SessionHub::start_jobs() {
    while (jobs_running_ < kOffloadJobsMax && !jobs_waiting_.empty()) {
        Job job = std::move(jobs_waiting_.front());
        jobs_waiting_.pop_front();
        if (!sessions_.contains(job.session)) continue;
        ++jobs_running_;
        offload_(std::move(job.work), [this, session = job.session, done = std::move(job.done)] {
            --jobs_running_;
            if (sessions_.contains(session)) done();
            start_jobs();
        });
    }
}

std::string SessionHub::random_hex() {
    const RandomBits bits = random_();
    return fmt::format("{:016x}{:016x}", bits.high, bits.low);
}

bool SessionHub::cancel_response(std::string_view response_id, std::uint64_t principal) {
    for (const auto& [session, handler] : sessions_) {
        if (handler->cancel_response(response_id, principal)) return true;
    }
    return false;
}

void SessionHub::on(const Delivery& delivery) {
    touched_.clear();
    for (const SessionEvent& event : delivery.events) {
        if (is_terminal(event)) --requests_live_;
        const SessionId session = session_of(event);
        const auto found = sessions_.find(session);
        if (found == sessions_.end()) {
            ++events_dropped_;
            continue;
        }
        found->second->on_event(event, delivery);
        touched_.push_back(session);
    }
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const SessionId session : touched_) {
        const auto found = sessions_.find(session);
        if (found != sessions_.end()) found->second->on_delivered();
    }
}

void SessionHub::on(const HubShutdown&) {
    draining_ = true;
    std::vector<SessionId> all;
    all.reserve(sessions_.size());
    for (const auto& [session, handler] : sessions_)
        all.push_back(session);
    std::sort(all.begin(), all.end());
    for (const SessionId session : all) {
        const auto found = sessions_.find(session);
        if (found != sessions_.end()) found->second->on_shutdown();
    }
}

boost::asio::awaitable<void> run_hub(SessionHub& hub, runtime::Mailbox<HubMessage>& inbox) {
    std::vector<HubMessage> batch;
    while (co_await inbox.receive_all(batch)) {
        for (const HubMessage& message : batch) {
            std::visit([&hub](const auto& m) { hub.on(m); }, message);
        }
    }
}

}  // namespace troupe::actors
