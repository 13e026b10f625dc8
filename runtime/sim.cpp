#include "runtime/sim.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::runtime {

namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t lane_weight_max = 8;
constexpr double starve_probability = 0.002;  // per handler
constexpr Duration starve_max = 50ms;
constexpr double jump_probability = 0.02;  // per move of time
constexpr Duration jump_max = 5s;

}  // namespace

SimLane::SimLane(std::string name, const Clock& clock, Trace& trace, FailureHandler on_failure,
                 std::uint64_t weight)
    : Lane(std::move(name), clock, std::move(on_failure)), trace_(trace), weight_(weight) {}

void SimLane::block_for(Duration duration) {
    blocked_until_ = std::max(blocked_until_, now() + duration);
}

bool SimLane::run_one_handler() {
    try {
        if (context().poll_one() == 0) return false;
    } catch (...) {
        report_failure("handler", std::current_exception());
    }
    note("run", ++handlers_);
    return true;
}

Simulation::Simulation(const SimulationOptions& options)
    : options_(options),
      faults_(options.faults),
      random_(options.seed),
      trace_(options.trace_events_max) {}

Simulation::~Simulation() = default;

SimLane& Simulation::add_lane(std::string name) {
    auto on_failure = [this](const LaneFailure& failure) { failures_.push_back(failure); };
    lanes_.push_back(
        std::unique_ptr<SimLane>(new SimLane(std::move(name), clock_, trace_, std::move(on_failure),
                                             1 + random_.below(lane_weight_max))));
    return *lanes_.back();
}

RunEnd Simulation::run_until(const std::function<bool()>& done, TimePoint deadline) {
    std::size_t handlers_at_this_instant = 0;
    for (;;) {
        if (done()) return RunEnd::done;
        if (run_one_handler()) {
            if (++handlers_at_this_instant > options_.handlers_per_instant_max) {
                return RunEnd::livelock;
            }
            continue;
        }
        const auto next = next_event();
        if (!next) return RunEnd::quiescent;
        if (*next > deadline) {
            advance_to(deadline);
            return RunEnd::deadline;
        }
        const bool jump = chance("clock_jump", jump_probability);
        advance_to(jump ? std::min(deadline, *next + Duration(random_.between(0, jump_max.count())))
                        : *next);
        handlers_at_this_instant = 0;
    }
}

RunEnd Simulation::run_until_quiescent(TimePoint deadline) {
    return run_until([] { return false; }, deadline);
}

bool Simulation::run_one_handler() {
    starve_a_lane();
    // Only running a handler can make a lane ready, so a lane found idle stays out of this round.
    for (const auto& lane : lanes_)
        lane->maybe_ready_ = !lane->blocked();
    while (SimLane* lane = choose_lane()) {
        if (lane->run_one_handler()) return true;
        lane->maybe_ready_ = false;
    }
    return false;
}

void Simulation::starve_a_lane() {
    if (lanes_.empty() || !chance("lane_starved", starve_probability)) return;
    SimLane& lane = *lanes_[random_.below(lanes_.size())];
    lane.block_for(Duration(random_.between(0, starve_max.count())));
}

SimLane* Simulation::choose_lane() {
    std::uint64_t weights = 0;
    for (const auto& lane : lanes_)
        weights += lane->maybe_ready_ ? lane->weight_ : 0;
    if (weights == 0) return nullptr;
    std::uint64_t ticket = random_.below(weights);
    for (const auto& lane : lanes_) {
        if (!lane->maybe_ready_) continue;
        if (ticket < lane->weight_) return lane.get();
        ticket -= lane->weight_;
    }
    return nullptr;
}

std::optional<TimePoint> Simulation::next_event() const {
    std::optional<TimePoint> next;
    const auto consider = [&next](TimePoint time) { next = std::min(next.value_or(time), time); };
    for (const auto& lane : lanes_) {
        if (lane->blocked()) consider(lane->blocked_until_);
        if (const auto timer = lane->timers().next_deadline()) consider(*timer);
    }
    return next;
}

void Simulation::advance_to(TimePoint time) {
    clock_.advance_to(time);
    for (const auto& lane : lanes_)
        lane->timers().fire_due(now());
}

bool Simulation::chance(std::string_view fault, double probability) {
    if (!fault_on(fault)) return false;
    return random_.chance(std::min(1.0, probability * fault_weight(fault)));
}

bool Simulation::fault_on(std::string_view fault) {
    return faults_ && fault_weight(fault) > 0;
}

// A function of seed and name alone, so that asking for a new fault changes no other one. Some
// seeds have no fault at all, some have all of them (swarm testing, Groce et al. 2012).
double Simulation::fault_weight(std::string_view fault) {
    if (const auto known = fault_weights_.find(fault); known != fault_weights_.end()) {
        return known->second;
    }
    static constexpr double shares[] = {0.0, 0.25, 0.5, 0.75, 1.0};
    static constexpr double weights[] = {0.25, 0.5, 1.0, 2.0};
    const double share = shares[Random(mix_bits(options_.seed)).below(std::size(shares))];
    Random by_name(hash_bytes(fault, mix_bits(options_.seed)));
    const bool on = by_name.chance(share);
    const double weight = on ? weights[by_name.below(std::size(weights))] : 0.0;
    fault_weights_.emplace(fault, weight);
    return weight;
}

std::string Simulation::description() const {
    std::string text = "seed " + std::to_string(options_.seed) + ", faults on:";
    const char* separator = " ";
    for (const auto& [fault, weight] : fault_weights_) {
        if (weight == 0) continue;
        text += separator + fault;
        separator = ", ";
    }
    return text;
}

}  // namespace troupe::runtime
