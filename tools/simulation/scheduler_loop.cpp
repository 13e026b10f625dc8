#include "tools/simulation/scheduler_loop.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/spare_deliveries.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::simulation {
namespace {

constexpr model::TokenId kToken = 5;
constexpr std::uint32_t kPromptTokens = 64;

}  // namespace

SchedulerLoop::SchedulerLoop(std::uint32_t running, std::uint32_t steps) : stats_(running) {
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
    while (decoding_ < running) {
        step();
        compute();
    }
}

void SchedulerLoop::step() {
    scheduler_->step(now_ += std::chrono::milliseconds(1), messages_, output_);
    messages_.clear();
    actors::give_back(delivery_);
    if (!scheduler_->outbox().deliveries()[0].events.empty())
        delivery_ = scheduler_->outbox().take(0);
    TROUPE_ASSERT(output_.run.has_value(), "somebody always runs");
}

void SchedulerLoop::submit(std::uint32_t i) {
    actors::Submit submit;
    submit.request = i + 1;
    for (std::uint32_t token = 0; token < kPromptTokens; ++token)
        submit.prompt.push_back(static_cast<model::TokenId>(i + token));
    submit.params.ignore_eos = true;
    submit.principal.id = i;
    submit.stop = runtime::StopFlag::make();
    messages_.emplace_back(std::move(submit));
}

void SchedulerLoop::compute() {
    actors::RunStep run = std::move(*output_.run);
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

}  // namespace troupe::simulation
