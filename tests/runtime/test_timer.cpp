#include <catch2/catch.hpp>

#include "runtime/sim.hpp"
#include "runtime/thread.hpp"
#include "runtime/timer.hpp"
#include "tests/runtime/support.hpp"

namespace asio = boost::asio;
using namespace troupe::runtime;
using namespace std::chrono_literals;

namespace {

using Story = std::vector<std::pair<int, Duration>>;  // who, when

asio::awaitable<void> sleep_and_tell(Lane& lane, int who, Duration until, Story& story) {
    co_await sleep_until(lane, TimePoint(until));
    story.emplace_back(who, lane.now().time_since_epoch());
}

asio::awaitable<void> wait_and_tell(Timer& timer, TimePoint until, std::vector<bool>& results) {
    results.push_back(co_await timer.wait_until(until));
}

}  // namespace

TEST_CASE("a queue fires what is due, by deadline and then by age", "[runtime][timer]") {
    std::vector<int> fired;
    std::vector<std::optional<TimePoint>> told;
    TimerQueue queue([&](std::optional<TimePoint> earliest) { told.push_back(earliest); });
    const auto add = [&](Duration at, int who) {
        return queue.add(TimePoint(at), Continuation<bool>::of_call(
                                            [&fired, who](bool) { fired.push_back(who); }));
    };
    add(30ms, 1);
    add(10ms, 2);
    add(20ms, 3);
    const auto removed = add(15ms, 4);
    add(10ms, 5);
    CHECK(queue.next_deadline() == TimePoint(10ms));
    CHECK(told == std::vector<std::optional<TimePoint>>{TimePoint(30ms), TimePoint(10ms)});

    CHECK(queue.fire_due(TimePoint(9ms)) == 0);
    CHECK(queue.remove(removed));
    CHECK_FALSE(queue.remove(removed));
    CHECK(queue.fire_due(TimePoint(20ms)) == 3);
    CHECK(fired == std::vector{2, 5, 3});
    CHECK(told.back() == TimePoint(30ms));
    CHECK(queue.fire_due(TimePoint(1s)) == 1);
    CHECK_FALSE(queue.next_deadline());
    CHECK_FALSE(told.back());
}

TEST_CASE("virtual time is exact", "[runtime][timer][sim]") {
    Simulation sim({.seed = 5, .faults = false});
    SimLane& left = sim.add_lane("left");
    SimLane& right = sim.add_lane("right");
    Story story;
    left.spawn("1", sleep_and_tell(left, 1, 3h, story));
    left.spawn("2", sleep_and_tell(left, 2, 1ns, story));
    right.spawn("3", sleep_and_tell(right, 3, 5ms, story));
    right.spawn("4", sleep_and_tell(right, 4, 0ns, story));
    CHECK(sim.run_until_quiescent(TimePoint(24h)) == RunEnd::quiescent);
    CHECK(story == Story{{4, 0ns}, {2, 1ns}, {3, 5ms}, {1, 3h}});
    CHECK(sim.now() == TimePoint(3h));
}

TEST_CASE("cancel ends a wait before its time and not after", "[runtime][timer][sim]") {
    Simulation sim({.seed = 1, .faults = false});
    SimLane& lane = sim.add_lane("io-0");
    std::vector<bool> results;
    Timer timer(lane);
    timer.cancel();  // nobody waits: nothing happens
    lane.spawn("wait", wait_and_tell(timer, TimePoint(10ms), results));
    sim.run_until_quiescent(TimePoint(9ms));
    timer.cancel();
    sim.run_until_quiescent(TimePoint(1s));
    CHECK(results == std::vector{false});

    lane.spawn("wait", wait_and_tell(timer, TimePoint(2s), results));
    sim.run_until_quiescent(TimePoint(3s));
    timer.cancel();
    sim.run_until_quiescent(TimePoint(4s));
    CHECK(results == std::vector{false, true});
}

TEST_CASE("timers of a real thread wait no less than asked and keep their order",
          "[runtime][timer][threads]") {
    const SteadyClock clock;
    troupe::test::FailureLog log;
    NamedThread lane("timers", clock, log.handler());
    Story story;
    const Duration start = clock.now().time_since_epoch();
    lane.spawn("1", sleep_and_tell(lane, 1, start + 20ms, story));
    lane.spawn("2", sleep_and_tell(lane, 2, start + 5ms, story));
    lane.spawn("3", sleep_and_tell(lane, 3, start + 10ms, story));
    lane.finish();
    lane.run();
    REQUIRE(story.size() == 3);
    CHECK(story[0].first == 2);
    CHECK(story[1].first == 3);
    CHECK(story[2].first == 1);
    CHECK(story[0].second >= start + 5ms);
    CHECK(story[1].second >= start + 10ms);
    CHECK(story[2].second >= start + 20ms);
}

TEST_CASE("a cancelled timer does not keep a real thread alive", "[runtime][timer][threads]") {
    const SteadyClock clock;
    troupe::test::FailureLog log;
    NamedThread lane("timers", clock, log.handler());
    std::vector<bool> results;
    Timer timer(lane);
    const auto cancel = [&]() -> asio::awaitable<void> {
        co_await sleep_for(lane, 1ms);
        timer.cancel();
    };
    lane.spawn("wait", wait_and_tell(timer, TimePoint::max(), results));
    lane.spawn("cancel", cancel());
    lane.finish();
    lane.run();
    CHECK(results == std::vector{false});
}
