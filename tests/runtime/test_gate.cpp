#include <catch2/catch.hpp>
#include <optional>

#include "runtime/gate.hpp"
#include "runtime/sim.hpp"
#include "tests/runtime/support.hpp"

namespace asio = boost::asio;
using namespace troupe::runtime;

namespace {

asio::awaitable<void> close_and_tell(Gate& gate, int& closed) {
    co_await gate.close();
    ++closed;
}

}  // namespace

TEST_CASE("closing a gate waits until all have left", "[runtime][gate]") {
    Simulation sim({.seed = 1, .faults = false});
    SimLane& lane = sim.add_lane("io-0");
    Gate gate;
    int closed = 0;
    std::optional<Gate::Pass> first = gate.enter();
    std::optional<Gate::Pass> second = gate.enter();
    CHECK(gate.count() == 2);

    lane.spawn("close", close_and_tell(gate, closed));
    lane.spawn("close", close_and_tell(gate, closed));
    sim.run_until_quiescent(TimePoint::max());
    CHECK(gate.closed());
    CHECK(closed == 0);
    first.reset();
    sim.run_until_quiescent(TimePoint::max());
    CHECK(closed == 0);
    second.reset();
    CHECK(gate.count() == 0);
    sim.run_until_quiescent(TimePoint::max());
    CHECK(closed == 2);
}

TEST_CASE("an empty gate closes at once", "[runtime][gate]") {
    Simulation sim({.seed = 1, .faults = false});
    SimLane& lane = sim.add_lane("io-0");
    Gate gate;
    int closed = 0;
    { const Gate::Pass pass = gate.enter(); }
    lane.spawn("close", close_and_tell(gate, closed));
    sim.run_until_quiescent(TimePoint::max());
    CHECK(closed == 1);
}

TEST_CASE("a pass that is moved counts once", "[runtime][gate]") {
    Gate gate;
    Gate::Pass first = gate.enter();
    Gate::Pass moved = std::move(first);
    CHECK(gate.count() == 1);
    {
        Gate::Pass other = gate.enter();
        CHECK(gate.count() == 2);
        other = std::move(moved);
    }
    CHECK(gate.count() == 1);
}

TEST_CASE("work that outlives its gate or comes after the close is a bug", "[runtime][gate]") {
    struct Owner {
        std::optional<Gate::Pass> pass;
        Gate gate;  // destroyed first
    };
    CHECK_THAT(troupe::test::assertion_of([] {
                   Owner owner;
                   owner.pass = owner.gate.enter();
               }),
               Catch::Contains("work outlives its gate"));
    CHECK_THAT(troupe::test::assertion_of([] {
                   Simulation sim({.seed = 1, .faults = false});
                   Gate gate;
                   int closed = 0;
                   sim.add_lane("io-0").spawn("close", close_and_tell(gate, closed));
                   sim.run_until_quiescent(TimePoint::max());
                   (void)gate.enter();
               }),
               Catch::Contains("the gate is closed"));
}
