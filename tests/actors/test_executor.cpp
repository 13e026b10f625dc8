#include <catch2/catch.hpp>

#include "actors/executor.hpp"
#include "tools/simulation/fake_backend.hpp"

namespace troupe::actors {
namespace {

using simulation::FakeBackend;

RunStep step_with(std::uint64_t number, model::TokenId token) {
    RunStep step{std::make_unique<model::StepPlan>(), std::make_unique<model::StepResult>()};
    step.plan->step = number;
    if (number == 0) {
        step.plan->opens.emplace_back().prompt_length = 1;
        step.plan->grants.push_back({0, 0});
    }
    step.plan->sequences.push_back(
        {.position = static_cast<std::uint32_t>(number), .token_count = 1, .sample_count = 1});
    step.plan->tokens.push_back(token);
    return step;
}

TEST_CASE("steps end in the order in which they were sent", "[actors][executor]") {
    FakeBackend backend({});
    Executor executor(backend);
    REQUIRE_FALSE(executor.submit(step_with(0, 5)));
    REQUIRE_FALSE(executor.submit(step_with(1, model::kDrawnToken)));
    REQUIRE(executor.outstanding() == 2);
    for (std::uint64_t number : {0u, 1u}) {
        const SchedulerMessage message = executor.wait();
        const auto& done = std::get<StepDone>(message);
        REQUIRE(done.plan->step == number);
        REQUIRE(done.result->step == number);
        REQUIRE(done.result->sampled.size() == 1);
    }
    REQUIRE(backend.breach() == "");
}

TEST_CASE("a failure drops what is outstanding and what still comes, until step 0",
          "[actors][executor]") {
    int steps = 0;
    FakeBackend backend({.fail_step = [&] { return ++steps == 2; }});
    Executor executor(backend);
    REQUIRE_FALSE(executor.submit(step_with(0, 5)));
    REQUIRE(std::holds_alternative<StepDone>(executor.wait()));
    REQUIRE_FALSE(executor.submit(step_with(1, 6)));
    REQUIRE_FALSE(executor.submit(step_with(2, 7)));
    const SchedulerMessage message = executor.wait();
    REQUIRE(std::get<ExecutorFailed>(message).message == "the fake device was lost");
    REQUIRE(executor.outstanding() == 0);
    REQUIRE_FALSE(executor.submit(step_with(3, 8)));  // sent before the scheduler knew
    REQUIRE(executor.outstanding() == 0);
    REQUIRE_FALSE(executor.submit(step_with(0, 5)));
    REQUIRE(std::holds_alternative<StepDone>(executor.wait()));
    REQUIRE(backend.breach() == "");
}

// A backend that cannot even take a step.
class BrokenBackend final : public model::Backend {
 public:
    [[nodiscard]] const model::BackendInfo& info() const override { return info_; }
    void submit(const model::StepPlan&) override { throw model::BackendError("no device"); }
    void wait(model::StepResult&) override {}
    void reset() override {}

 private:
    model::BackendInfo info_;
};

TEST_CASE("a failure in submit is told at once", "[actors][executor]") {
    BrokenBackend backend;
    Executor executor(backend);
    const auto failure = executor.submit(step_with(0, 5));
    REQUIRE(failure.has_value());
    REQUIRE(failure->message == "no device");
    REQUIRE(executor.outstanding() == 0);
}

}  // namespace
}  // namespace troupe::actors
