#include <catch2/catch.hpp>

#include "actors/step_budget.hpp"

namespace troupe::actors {
namespace {

constexpr std::int64_t kDecodeStep_ns = 5'000'000;
constexpr std::int64_t kPromptToken_ns = 500'000;

StepBudget taught(StepBudgetSettings settings) {
    StepBudget budget(settings);
    for (int i = 0; i < 50; ++i) {
        budget.observe(4, 0, kDecodeStep_ns);
        budget.observe(4, budget.prefill_tokens(4),
                       kDecodeStep_ns + budget.prefill_tokens(4) * kPromptToken_ns);
    }
    return budget;
}

TEST_CASE("the budget fills the latency target beside decode rows", "[actors][budget]") {
    const StepBudget budget = taught({.step_latency_ms = 40, .tokens_per_step_max = 512});
    REQUIRE(budget.prefill_tokens(4) == 60);  // (40 - 5) / 0.5 = 70, and 64 rows are whole tiles
    REQUIRE(budget.prefill_tokens(8) == 56);
}

TEST_CASE("few prompt tokens move whether or not they make whole tiles", "[actors][budget]") {
    const StepBudget budget = taught({.step_latency_ms = 15, .tokens_per_step_max = 512});
    REQUIRE(budget.prefill_tokens(4) == 20);   // (15 - 5) / 0.5, but 12 would be below the least
    REQUIRE(budget.prefill_tokens(12) == 20);  // 32 rows
}

TEST_CASE("with nobody streaming the larger target counts", "[actors][budget]") {
    StepBudget budget = taught({.step_latency_ms = 40, .prefill_latency_ms = 100});
    for (int i = 0; i < 5; ++i) {
        const auto tokens = budget.prefill_tokens(0);
        budget.observe(0, tokens, tokens * kPromptToken_ns);
    }
    REQUIRE(budget.prefill_tokens(0) == 192);  // of 200
}

TEST_CASE("prompts move even when decode rows alone exceed the target", "[actors][budget]") {
    StepBudget budget({.step_latency_ms = 1});
    budget.observe(64, 0, 50'000'000);
    budget.observe(64, 16, 60'000'000);
    REQUIRE(budget.prefill_tokens(64) == 16);
}

TEST_CASE("a step never exceeds what the backend takes", "[actors][budget]") {
    StepBudget budget({.tokens_per_step_max = 32});
    REQUIRE(budget.prefill_tokens(0) == 32);
    REQUIRE(budget.prefill_tokens(30) == 2);
    REQUIRE(budget.prefill_tokens(32) == 0);
}

TEST_CASE("one disturbed step does not starve the prompts", "[actors][budget]") {
    StepBudget budget = taught({.step_latency_ms = 40});
    const auto before = budget.prefill_tokens(4);
    budget.observe(4, before, 3'000'000'000);
    REQUIRE(budget.prefill_tokens(4) >= before / 4);
    for (int i = 0; i < 30; ++i) {
        const auto tokens = budget.prefill_tokens(4);
        budget.observe(4, tokens, kDecodeStep_ns + tokens * kPromptToken_ns);
    }
    REQUIRE(budget.prefill_tokens(4) == before);
}

TEST_CASE("a slower machine is believed at once", "[actors][budget]") {
    StepBudget budget = taught({.step_latency_ms = 40});
    for (int i = 0; i < 4; ++i) {
        const auto tokens = budget.prefill_tokens(4);
        budget.observe(4, tokens, kDecodeStep_ns + tokens * kPromptToken_ns * 2);
    }
    REQUIRE(budget.prefill_tokens(4) <= 42);
}

TEST_CASE("a step is at most twice the largest that was tried", "[actors][budget]") {
    StepBudget budget({.prefill_latency_ms = 10'000, .tokens_per_step_max = 100'000});
    budget.observe(0, 100, 1'000);
    REQUIRE(budget.prefill_tokens(0) == 192);  // of 200
}

}  // namespace
}  // namespace troupe::actors
