// Times Scheduler::step with so many requests decoding: results in, cache asked, plan out, events
// for the hub handed over. The model is left out: every row draws the same token at no cost.
#include "tools/troupe/scheduler_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

#include "tools/simulation/scheduler_loop.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct SchedulerFlags {
    std::vector<std::uint32_t> running{1, 32, 256, 1024};
    std::uint32_t steps = 2000;
    bool as_json = false;
};

struct Cost {
    std::uint32_t running = 0;
    double median_us = 0;
    double p99_us = 0;
};

Cost measure(std::uint32_t running, std::uint32_t steps) {
    simulation::SchedulerLoop loop(running, steps);
    std::vector<double> times(steps);
    for (double& time : times) {
        const auto begin = std::chrono::steady_clock::now();
        loop.step();
        time = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin)
                   .count();
        loop.compute();
    }
    std::ranges::sort(times);
    return {running, times[times.size() / 2], times[times.size() * 99 / 100]};
}

int bench_scheduler(const SchedulerFlags& flags) {
    json::array rows;
    if (!flags.as_json) fmt::print("a step of the scheduler, {} of each\n", flags.steps);
    for (const std::uint32_t running : flags.running) {
        const Cost cost = measure(running, flags.steps);
        rows.push_back(json::object{
            {"running", running}, {"median_us", cost.median_us}, {"p99_us", cost.p99_us}});
        if (!flags.as_json) {
            fmt::print("  {:>5} running {:>8.2f} us  p99 {:>8.2f} us  ({:.3f} us a token)\n",
                       running, cost.median_us, cost.p99_us, cost.median_us / running);
        }
    }
    if (flags.as_json) {
        const json::object out{{"steps", flags.steps}, {"rows", std::move(rows)}};
        std::printf("%s\n", json::serialize(out).c_str());
    }
    return exit_ok;
}

}  // namespace

void add_scheduler_bench(Command& bench, Run& run) {
    const auto flags = std::make_shared<SchedulerFlags>();
    auto scheduler = bench.add_subcommand("scheduler", "Microseconds of the scheduler in a step");
    scheduler.add("--running", flags->running, "requests that run").separated_by(',');
    scheduler.add("--steps", flags->steps, "steps that are timed").within(100, 100'000);
    scheduler.add_switch("--json", flags->as_json, "print one JSON object");
    scheduler.when_chosen([flags, &run] { run = [flags] { return bench_scheduler(*flags); }; });
}

}  // namespace troupe::tools
