// Prompts whose own tokens are scored: every token, once, whatever the cache knows.
#include "tests/actors/scheduler_script.hpp"

namespace troupe::actors {
namespace {

Submit scored(Tokens prompt) {
    Submit submit;
    submit.prompt = std::move(prompt);
    submit.prefill_only = true;
    submit.score_prompt = true;
    return submit;
}

std::vector<float> expected_scores(const SchedulerScript& s, RequestId id) {
    return FakeBackend::oracle_scores(s.asked.at(id).prompt, s.backend.info().window);
}

TEST_CASE("a prompt's scores come in order, in as many steps as it takes", "[actors][scheduler]") {
    const auto tokens_per_step = GENERATE(16u, 24u, 512u);
    SchedulerScript s({.tokens_per_step_max = tokens_per_step});
    const RequestId id = s.submit(scored(prompt_of(100)));
    const RequestId other = s.submit(prompt_of(30, 3), length_of(20));
    s.run_until_idle();
    CHECK(s.reason(id) == FinishReason::stop);
    CHECK(s.heard[id].prompt_scores == expected_scores(s, id));
    CHECK(s.heard[id].tokens.empty());
    CHECK(s.heard[other].tokens == s.expected(other));
}

TEST_CASE("a prompt that is known is computed again to be scored", "[actors][scheduler]") {
    SchedulerScript s;
    s.submit(prompt_of(64), length_of(3));
    s.run_until_idle();
    const RequestId id = s.submit(scored(prompt_of(64)));
    s.run_until_idle();
    CHECK(s.heard[id].prompt_scores == expected_scores(s, id));
    CHECK(s.heard[id].finished[0].usage.cached_tokens == 0);
}

TEST_CASE("answers to a prompt that is being scored share its pages", "[actors][scheduler]") {
    SchedulerScript s({.tokens_per_step_max = 32});
    const RequestId id = s.submit(scored(prompt_of(100)));
    const RequestId answer = s.submit(prompt_of(100), length_of(5));
    s.run_until_idle();
    CHECK(s.heard[id].prompt_scores == expected_scores(s, id));
    CHECK(s.heard[answer].tokens == s.expected(answer));
    CHECK(s.heard[answer].finished[0].usage.cached_tokens == 96);
}

TEST_CASE("a preempted prompt's scores are not told twice", "[actors][scheduler]") {
    SchedulerScript s({.pages_total = 11, .tokens_per_step_max = 4});
    const RequestId stream = s.submit(prompt_of(30), length_of(60));
    s.turn();
    const RequestId id = s.submit(scored(prompt_of(112, 3)));  // all pages but one, for 38 steps
    s.run_until_idle();
    REQUIRE(s.stats.preemptions_total.get() > 0);
    CHECK(s.heard[id].prompt_scores == expected_scores(s, id));
    CHECK(s.heard[stream].tokens == s.expected(stream));
}

TEST_CASE("a prompt of one token has nothing to score", "[actors][scheduler]") {
    SchedulerScript s;
    const RequestId id = s.submit(scored(prompt_of(1)));
    s.run_until_idle();
    CHECK(s.reason(id) == FinishReason::stop);
    CHECK(s.heard[id].prompt_scores.empty());
}

TEST_CASE("a prompt's score that is not finite fails its request alone", "[actors][scheduler]") {
    int rows = 0;
    SchedulerScript s({.tokens_per_step_max = 16, .fail_row = [&] { return ++rows == 2; }});
    const RequestId id = s.submit(scored(prompt_of(40)));
    s.run_until_idle();
    const RequestId next = s.submit(scored(prompt_of(40)));
    s.run_until_idle();
    CHECK(s.reason(id) == FinishReason::error);
    CHECK_FALSE(s.heard[id].finished[0].error.empty());
    CHECK(s.heard[id].prompt_scores.size() < 39);
    CHECK(s.heard[next].prompt_scores == expected_scores(s, next));
}

}  // namespace
}  // namespace troupe::actors
