#include <catch2/catch.hpp>
#include <csignal>

#include "runtime/base/log.hpp"
#include "runtime/sim.hpp"
#include "runtime/supervisor.hpp"
#include "runtime/thread.hpp"
#include "tests/runtime/support.hpp"

using namespace troupe::runtime;
using namespace std::chrono_literals;
using enum SupervisorAction;

TEST_CASE("the supervisor performs its core's actions in virtual time",
          "[runtime][supervisor][sim]") {
    troupe::log::set_up(troupe::log::Level::off);
    Simulation sim({.seed = 1, .faults = false});
    SimLane& main_lane = sim.add_lane("main");
    std::vector<std::pair<SupervisorAction, TimePoint>> performed;
    Supervisor supervisor(main_lane, {.drain = 30s, .cancel_grace = 5s},
                          [&](SupervisorAction action) {
                              performed.emplace_back(action, sim.now());
                              if (action == stop_engine) supervisor.address().send(EngineStopped{});
                          });
    main_lane.spawn("supervisor", supervisor.run());
    CHECK(sim.run_until_quiescent(TimePoint(1h)) == RunEnd::quiescent);
    supervisor.address().send_control(StopRequested{});
    CHECK(sim.run_until_quiescent(TimePoint(1h)) == RunEnd::quiescent);
    CHECK(performed ==
          std::vector<std::pair<SupervisorAction, TimePoint>>{{drain_sessions, TimePoint(0s)},
                                                              {cancel_sessions, TimePoint(30s)},
                                                              {stop_engine, TimePoint(35s)},
                                                              {join, TimePoint(35s)}});
    CHECK(supervisor.exit_code() == ExitCode::ok);
    CHECK_FALSE(supervisor.address().send(EngineStopped{}));
}

TEST_CASE("two signals end the process at once", "[runtime][supervisor][threads]") {
    troupe::log::set_up(troupe::log::Level::off);
    const SteadyClock clock;
    troupe::test::FailureLog log;
    NamedThread main_lane("main", clock, log.handler());
    std::vector<SupervisorAction> performed;
    Supervisor supervisor(main_lane, {}, [&](SupervisorAction action) {
        performed.push_back(action);
        if (action == drain_sessions) std::raise(SIGTERM);
    });
    main_lane.spawn("supervisor", supervisor.run());
    main_lane.spawn("signals", supervisor.watch_signals());
    // Raised from the lane, where it comes after the first step of watch_signals().
    const auto raise_first = []() -> boost::asio::awaitable<void> {
        std::raise(SIGINT);
        co_return;
    };
    main_lane.spawn("raise", raise_first());
    main_lane.finish();
    main_lane.run();
    CHECK(performed == std::vector{drain_sessions, exit_now});
    CHECK(supervisor.exit_code() == ExitCode::forced);
    CHECK(log.failures().empty());
}

TEST_CASE("a supervisor that finishes lets go of the signals", "[runtime][supervisor][threads]") {
    troupe::log::set_up(troupe::log::Level::off);
    const SteadyClock clock;
    troupe::test::FailureLog log;
    NamedThread main_lane("main", clock, log.handler());
    Supervisor supervisor(main_lane, {}, [&](SupervisorAction action) {
        if (action == drain_sessions) supervisor.address().send(SessionsDrained{});
        if (action == stop_engine) supervisor.address().send(EngineStopped{});
    });
    main_lane.spawn("supervisor", supervisor.run());
    main_lane.spawn("signals", supervisor.watch_signals());
    main_lane.finish();
    supervisor.address().send_control(StopRequested{});
    main_lane.run();  // returns: no coroutine is left
    CHECK(supervisor.exit_code() == ExitCode::ok);
}
