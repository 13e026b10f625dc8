#include "tools/troupe/engine_bench.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <random>
#include <vector>

#include "runtime/base/assert.hpp"

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;

std::uint32_t pages_for(std::uint32_t tokens) {
    return (tokens + model::kPageTokens - 1) / model::kPageTokens;
}

double processor_seconds() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

class Stopwatch {
 public:
    [[nodiscard]] EngineRate rate(std::uint64_t tokens) const {
        return {tokens, std::chrono::duration<double>(Clock::now() - start_).count(),
                processor_seconds() - processor_start_};
    }

 private:
    Clock::time_point start_ = Clock::now();
    double processor_start_ = processor_seconds();
};

// Opens slots, grants pages in order and feeds prompts; the plan it builds is reused.
class Driver {
 public:
    explicit Driver(model::Backend& backend) : backend_(backend) {}

    void open(std::uint32_t slots, std::uint32_t tokens_each) {
        plan_.clear();
        model::PageId page = 0;
        for (model::SlotId slot = 0; slot < slots; ++slot) {
            model::SlotOpen& open = plan_.opens.emplace_back();
            open.slot = slot;
            open.params.temperature = 0;
            for (std::uint32_t i = 0; i < pages_for(tokens_each); ++i) {
                plan_.grants.push_back({slot, page++});
            }
        }
        TROUPE_ASSERT(page <= backend_.info().pages_total && slots <= backend_.info().slots_max);
        slots_ = slots;
        pages_each_ = pages_for(tokens_each);
        run();
    }

    // Feeds `tokens` random tokens to one slot; a token is drawn after the last.
    void prefill(model::SlotId slot, std::uint32_t tokens) {
        for (std::uint32_t position = 0; position < tokens;) {
            const std::uint32_t count =
                std::min(backend_.info().tokens_per_step_max, tokens - position);
            plan_.clear();
            const bool last = position + count == tokens;
            plan_.sequences.push_back({slot, position, 0, count, last ? 1U : 0U, 0});
            for (std::uint32_t i = 0; i < count; ++i)
                plan_.tokens.push_back(random_token());
            run();
            position += count;
        }
    }

    // Gives every other slot a copy of the first one's `tokens`: as much memory to read as if each
    // had computed them, in a fraction of the time.
    void copy_first_to_all(std::uint32_t tokens) {
        const std::uint32_t pages = pages_for(tokens);
        plan_.clear();
        for (model::PageId slot = 1; slot < slots_; ++slot) {
            for (model::PageId page = 0; page < pages; ++page)
                plan_.copies.push_back({page, slot * pages_each_ + page, model::kPageTokens});
        }
        run();
    }

    void close() {
        plan_.clear();
        for (model::SlotId slot = 0; slot < slots_; ++slot)
            plan_.closes.push_back(slot);
        run();
    }

 private:
    void run() {
        backend_.submit(plan_);
        backend_.wait(result_);
    }
    model::TokenId random_token() {
        return static_cast<model::TokenId>(
            random_() % static_cast<std::uint32_t>(backend_.info().vocabulary_size));
    }

    model::Backend& backend_;
    std::uint32_t slots_ = 0;
    std::uint32_t pages_each_ = 0;
    model::StepPlan plan_;
    model::StepResult result_;
    std::mt19937 random_{1};
};

void plan_decode(model::StepPlan& plan, std::uint32_t streams, std::uint32_t position,
                 model::TokenId token) {
    plan.clear();
    for (std::uint32_t slot = 0; slot < streams; ++slot) {
        plan.sequences.push_back({slot, position, slot, 1, 1, 0});
        plan.tokens.push_back(token);
    }
}

}  // namespace

EngineRate measure_prefill(model::Backend& backend, std::uint32_t tokens) {
    Driver driver(backend);
    driver.open(1, tokens);
    const Stopwatch watch;
    driver.prefill(0, tokens);
    const EngineRate rate = watch.rate(tokens);
    driver.close();
    return rate;
}

EngineRate measure_decode(model::Backend& backend, std::uint32_t streams, std::uint32_t context,
                          std::uint32_t steps) {
    TROUPE_ASSERT(streams >= 1 && context >= 1 && steps >= 1);
    TROUPE_ASSERT(streams <= backend.info().tokens_per_step_max);
    Driver driver(backend);
    driver.open(streams, context + steps);
    driver.prefill(0, context);
    driver.copy_first_to_all(context);

    std::array<model::StepPlan, 2> plans;
    model::StepResult result;
    std::vector<std::int64_t> idle_ns;
    idle_ns.reserve(steps);
    const Stopwatch watch;
    plan_decode(plans[0], streams, context, 1);  // all but the first have drawn nothing yet
    backend.submit(plans[0]);
    for (std::uint32_t step = 1; step < steps; ++step) {
        model::StepPlan& plan = plans[step % 2];
        plan_decode(plan, streams, context + step, model::kDrawnToken);
        backend.submit(plan);
        backend.wait(result);
        if (step > 1) idle_ns.push_back(result.idle_ns);  // the first came after a pause
    }
    backend.wait(result);
    EngineRate rate = watch.rate(std::uint64_t{streams} * steps);
    idle_ns.push_back(result.idle_ns);
    const auto middle = idle_ns.begin() + static_cast<std::ptrdiff_t>(idle_ns.size() / 2);
    std::nth_element(idle_ns.begin(), middle, idle_ns.end());
    rate.idle_seconds = static_cast<double>(*middle) * 1e-9;
    driver.close();
    return rate;
}

std::uint32_t streams_max(const model::Backend& backend, std::uint32_t context,
                          std::uint32_t steps) {
    const model::BackendInfo& info = backend.info();
    return std::min(
        {info.slots_max, info.tokens_per_step_max, info.pages_total / pages_for(context + steps)});
}

}  // namespace troupe::tools
