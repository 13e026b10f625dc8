// The simulator: plays every thread of the program on one OS thread, deterministically. Each lane
// is an io_context; one handler of a seeded-random ready lane runs at a time; time is virtual and
// moves only when no lane can run, to the next timer or the end of a blocking wait. The actors are
// the product's own. The same seed gives the same run, which the trace's digest proves.
//
//     Simulation sim({.seed = seed});
//     SimLane& engine = sim.add_lane("engine");
//     engine.spawn("scheduler", run_scheduler(engine, inbox));
//     const RunEnd end = sim.run_until_quiescent(sim.now() + 60s);
//     sim.stop_faults();
//
// Faults: code of the simulation asks `sim.chance("step_error", 0.01)` where a fault could strike.
// Each seed switches a random subset of the names on, each with a random weight; two are built in:
// "lane_starved" (a lane is not run for some virtual milliseconds) and "clock_jump" (time moves
// past the next event). Lifetime: mailboxes and actors are made after the Simulation and destroyed
// before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/random.hpp"
#include "runtime/clock.hpp"
#include "runtime/lane.hpp"
#include "runtime/trace.hpp"

namespace troupe::runtime {

class Simulation;

// A lane without a thread; made by Simulation::add_lane().
class SimLane final : public Lane {
 public:
    // The thread is inside a blocking call for `duration`: the lane runs nothing until then. For
    // fakes that stand for blocking functions, called through run_blocking().
    void block_for(Duration duration);

    [[nodiscard]] bool blocked() const noexcept override { return now() < blocked_until_; }
    [[nodiscard]] Trace& trace() noexcept override { return trace_; }

 private:
    friend class Simulation;
    SimLane(std::string name, const Clock& clock, Trace& trace, FailureHandler on_failure,
            std::uint64_t weight);

    bool run_one_handler();

    Trace& trace_;
    TimePoint blocked_until_{};
    const std::uint64_t weight_;  // how often it is chosen, relative to the others
    std::int64_t handlers_ = 0;
    bool maybe_ready_ = true;
};

struct SimulationOptions {
    std::uint64_t seed = 0;
    bool faults = true;  // false: no fault strikes, whatever the seed
    std::size_t trace_events_max = 4096;
    // Handlers run without time moving; more is taken for two actors that feed each other for ever.
    std::size_t handlers_per_instant_max = 1'000'000;
};

enum class RunEnd {
    done,       // the caller's condition came true
    quiescent,  // nothing is ready and no timer is set: nothing will ever happen
    deadline,   // something is still to happen, after the deadline
    livelock,   // handlers_per_instant_max was reached
};

class Simulation {
 public:
    explicit Simulation(const SimulationOptions& options);
    ~Simulation();

    SimLane& add_lane(std::string name);

    // Runs until done() is true (asked before each handler), nothing is left to do, or the next
    // event lies after `deadline`; then time stands at the deadline.
    RunEnd run_until(const std::function<bool()>& done, TimePoint deadline);
    RunEnd run_until_quiescent(TimePoint deadline);

    [[nodiscard]] const Clock& clock() const noexcept { return clock_; }
    [[nodiscard]] TimePoint now() const noexcept { return clock_.now(); }
    // For what the simulation's user makes up: workloads, delays. Part of the seed's run.
    [[nodiscard]] Random& random() noexcept { return random_; }
    [[nodiscard]] Trace& trace() noexcept { return trace_; }

    // True with about `probability` where this seed has the fault on, else never.
    bool chance(std::string_view fault, double probability);
    [[nodiscard]] bool fault_on(std::string_view fault);
    // From here on no fault strikes.
    void stop_faults() noexcept { faults_ = false; }

    // Exceptions that left coroutines or handlers.
    [[nodiscard]] const std::vector<LaneFailure>& failures() const noexcept { return failures_; }
    // "seed 17, faults on: clock_jump, step_error": what to print with a failed check.
    [[nodiscard]] std::string description() const;

 private:
    bool run_one_handler();
    void starve_a_lane();
    [[nodiscard]] SimLane* choose_lane();
    [[nodiscard]] std::optional<TimePoint> next_event() const;
    void advance_to(TimePoint time);
    double fault_weight(std::string_view fault);

    const SimulationOptions options_;
    bool faults_;
    VirtualClock clock_;
    Random random_;
    Trace trace_;
    std::vector<LaneFailure> failures_;
    std::map<std::string, double, std::less<>> fault_weights_;
    std::vector<std::unique_ptr<SimLane>> lanes_;
};

}  // namespace troupe::runtime
