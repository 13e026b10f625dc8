#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>

#include "runtime/offload.hpp"
#include "runtime/sim.hpp"
#include "runtime/thread.hpp"
#include "tests/runtime/support.hpp"

namespace asio = boost::asio;
using namespace troupe::runtime;

TEST_CASE("a job runs on the helper and its caller goes on at home",
          "[runtime][offload][threads]") {
    const SteadyClock clock;
    troupe::test::FailureLog log;
    NamedThread helper("offload-0", clock, log.handler());
    NamedThread home("io-0", clock, log.handler());
    Offload offload({&helper}, 4);
    bool on_helper = false;
    bool at_home = false;
    std::string answer;
    const auto call = [&]() -> asio::awaitable<void> {
        answer = co_await offload.run([&] {
            on_helper = helper.in_this_thread();
            return std::string("done");
        });
        at_home = home.in_this_thread();
    };
    home.spawn("call", call());
    helper.start();
    home.start();
    home.finish();
    home.join();
    helper.finish();
    helper.join();
    CHECK(answer == "done");
    CHECK(on_helper);
    CHECK(at_home);
    CHECK(offload.jobs() == 0);
}

TEST_CASE("what a job throws is thrown at its caller", "[runtime][offload]") {
    Simulation sim({.seed = 1, .faults = false});
    SimLane& helper = sim.add_lane("offload-0");
    SimLane& home = sim.add_lane("io-0");
    Offload offload({&helper}, 1);
    std::string caught;
    const auto call = [&]() -> asio::awaitable<void> {
        try {
            (void)co_await offload.run([]() -> int { throw std::runtime_error("no such file"); });
        } catch (const std::runtime_error& error) {
            caught = error.what();
        }
    };
    home.spawn("call", call());
    sim.run_until_quiescent(TimePoint::max());
    CHECK(caught == "no such file");
    CHECK(offload.jobs() == 0);
    CHECK(sim.failures().empty());
}

TEST_CASE("jobs spread over the helpers", "[runtime][offload]") {
    Simulation sim({.seed = 1, .faults = false});
    SimLane& first = sim.add_lane("offload-0");
    SimLane& second = sim.add_lane("offload-1");
    SimLane& home = sim.add_lane("io-0");
    Offload offload({&first, &second}, 6);
    int on_first = 0;
    const auto call = [&]() -> asio::awaitable<void> {
        on_first += co_await offload.run([&] { return first.in_this_thread() ? 1 : 0; });
    };
    for (int i = 0; i < 6; ++i)
        home.spawn("call", call());
    first.block_for(std::chrono::seconds(1));  // all six are handed out before any is done
    second.block_for(std::chrono::seconds(1));
    sim.run_until_quiescent(TimePoint::max());
    CHECK(on_first == 3);
}

TEST_CASE("more jobs than agreed are a bug", "[runtime][offload]") {
    const auto run_jobs = [](int jobs) {
        return troupe::test::assertion_of([jobs] {
            Simulation sim({.seed = 1, .faults = false});
            SimLane& helper = sim.add_lane("offload-0");
            SimLane& home = sim.add_lane("io-0");
            Offload offload({&helper}, 2);
            const auto call = [&]() -> asio::awaitable<void> {
                (void)co_await offload.run([] { return 0; });
            };
            for (int i = 0; i < jobs; ++i)
                home.spawn("call", call());
            helper.block_for(std::chrono::seconds(1));
            sim.run_until_quiescent(TimePoint::max());
        });
    };
    CHECK(run_jobs(2).empty());
    CHECK_THAT(run_jobs(3), Catch::Contains("too many offloaded jobs"));
}
