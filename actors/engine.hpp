// Engine: the group {Scheduler, PrefixCache, Executor} on two lanes around one backend; the same
// for the server, the tools, the simulator and the tests. The scheduler's mailbox is the way in,
// hubs get Deliveries. The group lives and fails together: after a BackendError every live request
// has its terminal event, the pool is empty again and the weights stay.
//
//     Engine engine(settings, backend, engine_lane, executor_lane, hubs, on_fatal);
//     engine.start();
//     engine.scheduler().send(Submit{...});
//     ...
//     engine.shutdown(now + 10s);  // both coroutines end when all is drained
//     engine_lane.finish(), executor_lane.finish(), join
//
// Made before the lanes start, destroyed after they have been joined.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/engine_stats.hpp"
#include "actors/messages.hpp"
#include "actors/scheduler.hpp"
#include "model/backend.hpp"
#include "runtime/address.hpp"
#include "runtime/lane.hpp"
#include "runtime/mailbox.hpp"

namespace troupe::actors {

struct EngineSettings {
    SchedulerSettings scheduler;  // what is the backend's or the hubs' in it is filled in by Engine
    std::uint32_t restarts_max = 3;  // within the window; one more is fatal
    std::chrono::seconds restart_window{60};
    // Called after each step with the scheduler; for checks in tests and the simulator.
    std::function<void(const Scheduler&)> after_step;
};

class Engine {
 public:
    // Called once on the engine lane, when the backend has failed too often: the engine has then
    // ended every request and refuses new ones. The process should end.
    using FatalHandler = std::function<void(const std::string& message)>;

    Engine(EngineSettings settings, model::Backend& backend, runtime::Lane& engine_lane,
           runtime::Lane& executor_lane, std::vector<runtime::Address<HubMessage>> hubs,
           FatalHandler on_fatal);

    void start();

    // From any thread. A send() that gives false: the engine has ended, and the sender is the one
    // to tell its client.
    [[nodiscard]] runtime::Address<SchedulerMessage> scheduler() {
        return runtime::Address<SchedulerMessage>(scheduler_inbox_);
    }

    // From any thread: finish what lives until then, refuse what is new, then end. A second call
    // may shorten the time.
    void shutdown(runtime::TimePoint drain_until);

    // From any thread.
    [[nodiscard]] const EngineStats& stats() const { return stats_; }
    [[nodiscard]] const SchedulerSettings& scheduler_settings() const {
        return settings_.scheduler;
    }

 private:
    [[nodiscard]] boost::asio::awaitable<void> run_scheduler();
    void step(Scheduler& scheduler, std::vector<SchedulerMessage>& batch, SchedulerOutput& output);
    void perform(Scheduler& scheduler, SchedulerOutput& output);
    [[nodiscard]] bool failed_too_often(runtime::TimePoint now);

    EngineSettings settings_;
    model::Backend& backend_;
    runtime::Lane& engine_lane_;
    runtime::Lane& executor_lane_;
    std::vector<runtime::Address<HubMessage>> hubs_;
    FatalHandler on_fatal_;
    EngineStats stats_;
    runtime::Mailbox<SchedulerMessage> scheduler_inbox_;
    runtime::Mailbox<ExecutorMessage> executor_inbox_;
    std::vector<runtime::TimePoint> failures_;  // within the restart window
};

}  // namespace troupe::actors
