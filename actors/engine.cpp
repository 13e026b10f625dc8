#include "actors/engine.hpp"

#include <utility>

#include "actors/engine_trace.hpp"
#include "actors/executor.hpp"
#include "actors/limits.hpp"
#include "runtime/base/log.hpp"

namespace troupe::actors {

Engine::Engine(EngineSettings settings, model::Backend& backend, runtime::Lane& engine_lane,
               runtime::Lane& executor_lane, std::vector<runtime::Address<HubMessage>> hubs,
               FatalHandler on_fatal)
    : settings_(std::move(settings)),
      backend_(backend),
      engine_lane_(engine_lane),
      executor_lane_(executor_lane),
      hubs_(std::move(hubs)),
      on_fatal_(std::move(on_fatal)),
      stats_(backend.info().slots_max),
      scheduler_inbox_(limits::scheduler_mailbox()),
      executor_inbox_(limits::executor_mailbox()) {
    settings_.scheduler.describe(backend.info());
    settings_.scheduler.hub_count = static_cast<std::uint32_t>(hubs_.size());
}

void Engine::start() {
    engine_lane_.spawn("scheduler", run_scheduler());
    executor_lane_.spawn("executor",
                         run_executor(executor_lane_, backend_, executor_inbox_, scheduler()));
}

void Engine::shutdown(runtime::TimePoint drain_until) {
    scheduler_inbox_.send_control(SchedulerShutdown{drain_until});
}

// After the end the mailbox is closed and what was still in it refused, so that whoever has sent a
// Submit hears of it: by an event, or by send() giving false.
boost::asio::awaitable<void> Engine::run_scheduler() {
    Scheduler scheduler(settings_.scheduler, stats_);
    SchedulerOutput output;
    std::vector<SchedulerMessage> batch;
    while (co_await scheduler_inbox_.receive_all(batch)) {
        do {
            step(scheduler, batch, output);
            if (!output.failure.empty() && failed_too_often(engine_lane_.now())) {
                on_fatal_(output.failure);
                batch.push_back(SchedulerShutdown{engine_lane_.now()});
            }
        } while (output.step_again || !batch.empty());
        if (output.stopped) scheduler_inbox_.close();
    }
    executor_inbox_.send(ExecutorShutdown{});
}

void Engine::step(Scheduler& scheduler, std::vector<SchedulerMessage>& batch,
                  SchedulerOutput& output) {
    const auto begun = engine_lane_.now();
    trace_messages(engine_lane_.trace(), executor_lane_.name(), begun, batch);
    scheduler.step(begun, batch, output);
    batch.clear();
    const auto planned = engine_lane_.now();
    engine_lane_.note_since(begun, "plan", scheduler.live_count());
    perform(scheduler, output);
    engine_lane_.note_since(planned, "deliver");
    stats_.steps_plan_ns_total.add((planned - begun).count());
    stats_.steps_deliver_ns_total.add((engine_lane_.now() - planned).count());
}

// The plan goes first: telling the hubs overlaps the computation.
void Engine::perform(Scheduler& scheduler, SchedulerOutput& output) {
    if (output.run) executor_inbox_.send(std::move(*output.run));
    output.run.reset();
    Outbox& outbox = scheduler.outbox();
    for (std::size_t hub = 0; hub < hubs_.size(); ++hub) {
        if (outbox.deliveries()[hub].events.empty()) continue;
        trace_endings(engine_lane_.trace(), engine_lane_.now(), outbox.deliveries()[hub]);
        hubs_[hub].send(outbox.take(hub));
    }
    if (!output.failure.empty()) {
        log::error("the backend failed, the engine starts afresh: {}", output.failure);
    }
    if (settings_.after_step) settings_.after_step(scheduler);
}

bool Engine::failed_too_often(runtime::TimePoint now) {
    failures_.push_back(now);
    std::erase_if(failures_, [&](runtime::TimePoint failure) {
        return now - failure > settings_.restart_window;
    });
    return failures_.size() > settings_.restarts_max;
}

}  // namespace troupe::actors
