#include "actors/hub.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/spare_deliveries.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

// The live responses' own address; sessions count from 1.
constexpr SessionId kLiveResponses = 0;

SessionId session_of(const SessionEvent& event) {
    return std::visit([](const auto& e) { return e.session; }, event);
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

std::int64_t system_unix_seconds() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

runtime::TimePoint system_now() {
    return runtime::SteadyClock().now();
}

OffloadFunction offload_from(runtime::Lane& lane, runtime::Offload& offload) {
    return [&lane, &offload](std::function<void()> work, std::function<void()> done) {
        lane.spawn("offload", run_offloaded(offload, std::move(work), std::move(done)));
    };
}

SessionHub::SessionHub(HubSettings settings, runtime::Address<SchedulerMessage> scheduler,
                       OffloadFunction offload)
    : settings_(std::move(settings)),
      scheduler_(scheduler),
      offload_(std::move(offload)),
      live_({settings_.index, kLiveResponses}, *this, settings_.live),
      archive_(settings_.index, settings_.recent_responses_max, settings_.recent_bytes_max,
               settings_.storage) {
    TROUPE_ASSERT(settings_.index < (1U << 16U), "a hub's index has 16 bits");
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
    return (static_cast<RequestId>(settings_.index) << 48U) | next_request_++;
}

std::optional<RequestError> SessionHub::refuse(const Principal& principal, std::uint32_t requests) {
    if (requests_live() + requests > settings_.requests_live_max) return too_many_requests_error();
    const auto wait_ms = rates_.take(principal, requests, now());
    if (!wait_ms) return std::nullopt;
    return RequestError{.status = 429,
                        .code = "rate_limit_exceeded",
                        .message = "This key has used up its requests or tokens a minute.",
                        .param = {},
                        .retry_after_ms = *wait_ms};
}

void SessionHub::settle(RequestId request, const Usage& usage) {
    const auto found = principals_.find(request);
    if (found == principals_.end()) return;
    rates_.charge(found->second, usage.prompt_tokens + usage.generated_tokens, now());
    principals_.erase(found);
}

const Principal* SessionHub::principal_of(RequestId request) const {
    const auto found = principals_.find(request);
    return found == principals_.end() ? nullptr : &found->second;
}

void SessionHub::submit(Submit submit) {
    TROUPE_ASSERT(requests_live() + submit.answers <= settings_.requests_live_max,
                  "sessions ask before they submit");
    for (std::uint32_t answer = 0; answer < submit.answers; ++answer)
        principals_.emplace(submit.request + answer, submit.principal);
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
    const RandomBits bits = settings_.random();
    return fmt::format("{:016x}{:016x}", bits.high, bits.low);
}

void SessionHub::find_stored(SessionId asker, std::string_view id, std::uint64_t principal,
                             ResponseArchive::Found found) {
    archive_.find(id, principal,
                  [this, asker, found = std::move(found)](const StoredResponse* stored) {
                      if (sessions_.contains(asker)) found(stored);
                  });
}

void SessionHub::erase_stored(SessionId asker, std::string_view id, std::uint64_t principal,
                              ResponseArchive::Done done) {
    archive_.erase(id, principal, [this, asker, done = std::move(done)](bool is_done) {
        if (sessions_.contains(asker)) done(is_done);
    });
}

Keeping SessionHub::keep(EndedResponse ended) {
    StoredResponse stored{.principal = ended.principal,
                          .id = ended.response.id,
                          .created_at = ended.response.created_at,
                          .completed = ended.response.status == ResponseStatus::completed,
                          .last_sequence = ended.last_sequence,
                          .json = settings_.write_response(ended.response),
                          .turn = std::move(ended.turn)};
    return archive_.keep(std::move(stored), [this, id = ended.response.id](bool is_kept) {
        std::vector<SessionId> touched;
        live_.kept(id, is_kept, touched);
        wake(touched);
    });
}

void SessionHub::on(const Delivery& delivery) {
    touched_.clear();
    for (const SessionEvent& event : delivery.events) {
        if (const auto* finished = std::get_if<Finished>(&event))
            settle(finished->request, finished->usage);
        else if (const auto* rejected = std::get_if<Rejected>(&event))
            settle(rejected->request, {});
        const SessionId session = session_of(event);
        if (session == kLiveResponses) {
            live_.deliver(event, delivery, unix_seconds(), touched_);
            continue;
        }
        const auto found = sessions_.find(session);
        if (found == sessions_.end()) {
            ++events_dropped_;
            continue;
        }
        found->second->on_event(event, delivery);
        touched_.push_back(session);
    }
    wake(touched_);
}

void SessionHub::wake(std::vector<SessionId>& touched) {
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (const SessionId session : touched) {
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

boost::asio::awaitable<void> run_hub(runtime::Lane& lane, SessionHub& hub,
                                     runtime::Mailbox<HubMessage>& inbox) {
    std::vector<HubMessage> batch;
    while (co_await inbox.receive_all(batch)) {
        const auto begun = lane.now();
        for (HubMessage& message : batch) {
            std::visit([&hub](const auto& m) { hub.on(m); }, message);
            if (auto* const delivery = std::get_if<Delivery>(&message)) give_back(*delivery);
        }
        lane.note_since(begun, "route", static_cast<std::int64_t>(batch.size()));
    }
}

}  // namespace troupe::actors
