// What the supervisor decides, without threads, clocks or signals: messages and times in, actions
// out. Somebody asks to stop: drain the sessions -> cancel what is left -> stop the engine -> join,
// each wait bounded; asked twice, at once. The engine gives up (it rebuilds itself a few times
// before): the same, from the cancel on, with an exit code that says so.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/clock.hpp"

namespace troupe::runtime {

struct SupervisorPolicy {
    Duration drain = std::chrono::seconds(30);         // for running answers to end by themselves
    Duration cancel_grace = std::chrono::seconds(5);   // for sessions to end once cancelled
    Duration engine_grace = std::chrono::seconds(10);  // for a step on the device to come back
};

struct EngineFailed {  // it has ended, and every request with it
    std::string error;
};
struct StopRequested {};    // SIGTERM, SIGINT or a command
struct SessionsDrained {};  // no session is left; after drain_sessions or cancel_sessions
struct EngineStopped {};    // answers stop_engine: device synced, memory freed

using SupervisorMessage = std::variant<EngineFailed, StopRequested, SessionsDrained, EngineStopped>;

enum class SupervisorAction {
    drain_sessions,   // accept nobody, tell sessions; say SessionsDrained when the last is gone
    cancel_sessions,  // the same without waiting for answers
    stop_engine,
    join,      // all is quiet: end the lanes and leave with exit_code()
    exit_now,  // leave with exit_code() without waiting for anything
};

[[nodiscard]] std::string_view to_string(SupervisorAction action);

// Values of sysexits.h.
enum class ExitCode {
    ok = 0,
    engine_failed = 70,  // EX_SOFTWARE: the engine failed too often
    forced = 75,         // EX_TEMPFAIL: told twice to stop, or something did not end in time
};

class SupervisorCore {
 public:
    using Actions = std::vector<SupervisorAction>;

    explicit SupervisorCore(const SupervisorPolicy& policy) : policy_(policy) {}

    [[nodiscard]] Actions on(const EngineFailed& failed, TimePoint now);
    [[nodiscard]] Actions on(const StopRequested& request, TimePoint now);
    [[nodiscard]] Actions on(const SessionsDrained& drained, TimePoint now);
    [[nodiscard]] Actions on(const EngineStopped& stopped, TimePoint now);
    // To be called at next_deadline() or later; earlier it does nothing.
    [[nodiscard]] Actions on_time(TimePoint now);

    [[nodiscard]] std::optional<TimePoint> next_deadline() const noexcept { return deadline_; }
    // After join or exit_now: nothing follows.
    [[nodiscard]] bool finished() const noexcept { return state_ == State::finished; }
    [[nodiscard]] ExitCode exit_code() const noexcept { return exit_code_; }

 private:
    enum class State { running, draining, cancelling, stopping_engine, finished };

    void enter(State state, TimePoint now, Duration wait_max);
    Actions finish(SupervisorAction last);

    const SupervisorPolicy policy_;
    State state_ = State::running;
    std::optional<TimePoint> deadline_;  // of the present state
    ExitCode exit_code_ = ExitCode::ok;
};

}  // namespace troupe::runtime
