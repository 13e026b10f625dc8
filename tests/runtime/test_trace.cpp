#include <catch2/catch.hpp>

#include "runtime/trace.hpp"

using namespace troupe::runtime;
using namespace std::chrono_literals;

namespace {

TraceEvent event(int number) {
    return {TimePoint(number * 1ms), "engine", "step", number, 0};
}

}  // namespace

TEST_CASE("a trace keeps the last events in order", "[runtime][trace]") {
    Trace trace(3);
    CHECK(trace.events().empty());
    trace.record(event(1));
    trace.record(event(2));
    CHECK(trace.events() == std::vector{event(1), event(2)});
    trace.record(event(3));
    CHECK(trace.events() == std::vector{event(1), event(2), event(3)});
    trace.record(event(4));
    trace.record(event(5));
    CHECK(trace.events() == std::vector{event(3), event(4), event(5)});
    CHECK(trace.count() == 5);
}

TEST_CASE("a digest depends on every field and on the order, not on the ring", "[runtime][trace]") {
    const auto digest = [](std::vector<TraceEvent> events, std::size_t events_max = 8) {
        Trace trace(events_max);
        for (const TraceEvent& e : events)
            trace.record(e);
        return trace.digest();
    };
    const auto reference = digest({event(1), event(2)});
    CHECK(digest({event(1), event(2)}) == reference);
    CHECK(digest({event(1), event(2)}, 1) == reference);
    CHECK(digest({event(2), event(1)}) != reference);
    CHECK(digest({event(1)}) != reference);

    const auto changed = [&](auto change) {
        TraceEvent second = event(2);
        change(second);
        return digest({event(1), second});
    };
    CHECK(changed([](TraceEvent& e) { e.time += 1ns; }) != reference);
    CHECK(changed([](TraceEvent& e) { e.lane = "io-0"; }) != reference);
    CHECK(changed([](TraceEvent& e) { e.name = "plan"; }) != reference);
    CHECK(changed([](TraceEvent& e) { e.first = 9; }) != reference);
    CHECK(changed([](TraceEvent& e) { e.second = 9; }) != reference);
    CHECK(changed([](TraceEvent& e) { e.took = 1ns; }) != reference);
}

TEST_CASE("a trace as text has one line an event", "[runtime][trace]") {
    Trace trace(4);
    trace.record({TimePoint(12s + 345us), "engine", "step", 7, 32});
    trace.record({TimePoint(13s), "io-0", "accept", 1, 0});
    trace.record({TimePoint(13s), "engine", "plan", 1, 0, 120us});
    CHECK(trace.text() ==
          "12.000345 engine step 7 32\n13.000000 io-0 accept 1 0\n"
          "13.000000 engine plan 1 0 +120us\n");
}
