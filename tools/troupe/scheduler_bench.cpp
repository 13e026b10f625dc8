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

#include "actors/scheduler.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

constexpr model::TokenId kToken = 5;
constexpr std::uint32_t kPromptTokens = 64;

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

// The scheduler with a model that takes no time and a hub that only listens.
class Loop {
 public:
    Loop(std::uint32_t running, std::uint32_t steps) : stats_(running) {
        const std::uint32_t context = kPromptTokens + steps + 64;
        actors::SchedulerSettings settings;
        settings.context_length = context;
        settings.slots_max = running;
        settings.pages_total = running * (context / model::kPageTokens + 1);
        settings.tokens_per_step_max = std::max(running, 512U);
        settings.speculation.lookup = false;
        settings.waiting_max = running + 1;
        settings.waiting_per_principal_max = running + 1;
        settings.pipeline_depth = 1;
        scheduler_ = std::make_unique<actors::Scheduler>(std::move(settings), stats_);
        for (std::uint32_t i = 0; i < running; ++i)
            submit(i);
        while (decoding_ < running)
            step();
    }

    // One turn; how long the scheduler took.
    double step() {
        const auto begin = std::chrono::steady_clock::now();
        scheduler_->step(now_ += std::chrono::milliseconds(1), messages_, output_);
        messages_.clear();
        if (!scheduler_->outbox().deliveries()[0].events.empty())
            delivery_ = scheduler_->outbox().take(0);
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - begin;
        TROUPE_ASSERT(output_.run.has_value(), "somebody always runs");
        compute(std::move(*output_.run));
        return took.count();
    }

 private:
    void submit(std::uint32_t i) {
        actors::Submit submit;
        submit.request = i + 1;
        for (std::uint32_t token = 0; token < kPromptTokens; ++token)
            submit.prompt.push_back(static_cast<model::TokenId>(i + token));
        submit.params.ignore_eos = true;
        submit.principal.id = i;
        submit.stop = runtime::StopFlag::make();
        messages_.emplace_back(std::move(submit));
    }

    void compute(actors::RunStep run) {
        model::StepResult& result = *run.result;
        result.compute_ns = 1'000'000;
        decoding_ = 0;
        for (const model::SequenceStep& step : run.plan->sequences) {
            const auto begin = static_cast<std::uint32_t>(result.sampled.size());
            result.sequences.push_back(
                {.slot = step.slot, .sampled_begin = begin, .sampled_count = step.sample_count});
            if (step.sample_count > 0) result.sampled.push_back({.id = kToken});
            decoding_ += step.sample_count;
        }
        messages_.emplace_back(actors::StepDone{std::move(run.plan), std::move(run.result)});
    }

    actors::EngineStats stats_;
    std::unique_ptr<actors::Scheduler> scheduler_;
    std::vector<actors::SchedulerMessage> messages_;
    actors::SchedulerOutput output_;
    actors::Delivery delivery_;
    runtime::TimePoint now_{};
    std::uint32_t decoding_ = 0;  // rows of the last step that drew a token
};

Cost measure(std::uint32_t running, std::uint32_t steps) {
    Loop loop(running, steps);
    std::vector<double> times(steps);
    for (double& time : times)
        time = loop.step();
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
