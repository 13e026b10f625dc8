#include <catch2/catch.hpp>

#include "runtime/supervisor_core.hpp"

namespace Catch {
template <>
struct StringMaker<troupe::runtime::SupervisorAction> {
    static std::string convert(troupe::runtime::SupervisorAction action) {
        return std::string(to_string(action));
    }
};
}  // namespace Catch

using namespace troupe::runtime;
using namespace std::chrono_literals;
using enum SupervisorAction;
using Actions = SupervisorCore::Actions;

namespace {

constexpr SupervisorPolicy policy{.drain = 30s, .cancel_grace = 5s, .engine_grace = 10s};

TimePoint at(Duration time) {
    return TimePoint(time);
}

}  // namespace

TEST_CASE("an engine that gives up ends the process, with a code that says so",
          "[runtime][supervisor]") {
    SupervisorCore core(policy);
    CHECK_FALSE(core.next_deadline());
    CHECK(core.on(EngineFailed{"device lost"}, at(59s)) ==
          Actions{drain_sessions, cancel_sessions});
    CHECK(core.on(EngineFailed{"again"}, at(59s)).empty());
    CHECK(core.on(SessionsDrained{}, at(60s)) == Actions{stop_engine});
    CHECK(core.on(EngineStopped{}, at(61s)) == Actions{join});
    CHECK(core.finished());
    CHECK(core.exit_code() == ExitCode::engine_failed);
}

TEST_CASE("a stop drains, stops the engine and joins", "[runtime][supervisor]") {
    SupervisorCore core(policy);
    CHECK(core.on(StopRequested{}, at(1s)) == Actions{drain_sessions});
    CHECK(core.next_deadline() == at(31s));
    CHECK(core.on_time(at(30s)).empty());
    CHECK(core.on(SessionsDrained{}, at(10s)) == Actions{stop_engine});
    CHECK(core.on(EngineStopped{}, at(11s)) == Actions{join});
    CHECK(core.finished());
    CHECK_FALSE(core.next_deadline());
    CHECK(core.exit_code() == ExitCode::ok);
}

TEST_CASE("sessions that outlast the drain are cancelled", "[runtime][supervisor]") {
    SupervisorCore core(policy);
    (void)core.on(StopRequested{}, at(0s));
    CHECK(core.on_time(at(30s)) == Actions{cancel_sessions});
    CHECK(core.next_deadline() == at(35s));
    SECTION("and end then") {
        CHECK(core.on(SessionsDrained{}, at(31s)) == Actions{stop_engine});
    }
    SECTION("and are left behind if they do not end") {
        CHECK(core.on_time(at(35s)) == Actions{stop_engine});
        CHECK(core.on(SessionsDrained{}, at(36s)).empty());
    }
    CHECK(core.on(EngineStopped{}, at(40s)) == Actions{join});
    CHECK(core.exit_code() == ExitCode::ok);
}

TEST_CASE("an engine that does not stop is left behind", "[runtime][supervisor]") {
    SupervisorCore core(policy);
    (void)core.on(StopRequested{}, at(0s));
    (void)core.on(SessionsDrained{}, at(1s));
    CHECK(core.next_deadline() == at(11s));
    CHECK(core.on_time(at(11s)) == Actions{exit_now});
    CHECK(core.finished());
    CHECK(core.exit_code() == ExitCode::forced);
}

TEST_CASE("a second request to stop ends at once, in every state", "[runtime][supervisor]") {
    SupervisorCore core(policy);
    SECTION("while draining") {
        (void)core.on(StopRequested{}, at(0s));
    }
    SECTION("while cancelling") {
        (void)core.on(StopRequested{}, at(0s));
        (void)core.on_time(at(30s));
    }
    SECTION("while the engine stops") {
        (void)core.on(StopRequested{}, at(0s));
        (void)core.on(SessionsDrained{}, at(0s));
    }
    CHECK(core.on(StopRequested{}, at(31s)) == Actions{exit_now});
    CHECK(core.exit_code() == ExitCode::forced);
    CHECK(core.on(StopRequested{}, at(32s)).empty());
    CHECK(core.on(EngineStopped{}, at(32s)).empty());
    CHECK(core.on(SessionsDrained{}, at(32s)).empty());
    CHECK(core.on(EngineFailed{}, at(32s)).empty());
    CHECK(core.on_time(at(1h)).empty());
}

TEST_CASE("an engine failure while draining cancels the rest", "[runtime][supervisor]") {
    SupervisorCore core(policy);
    (void)core.on(StopRequested{}, at(0s));
    CHECK(core.on(EngineFailed{}, at(1s)) == Actions{cancel_sessions});
    CHECK(core.next_deadline() == at(6s));
    CHECK(core.on(EngineFailed{}, at(1s)).empty());
}
