// The scheduler's ordinary life: answers, batches, limits, prefixes, prompts.
#include "tests/actors/scheduler_script.hpp"

namespace troupe::actors {
namespace {

SchedulerSettings depth(std::uint32_t steps) {
    return {.pipeline_depth = steps};
}

std::size_t tokens_of_slot(const model::StepPlan& plan, model::SlotId slot) {
    for (const auto& s : plan.sequences) {
        if (s.slot == slot) return s.token_count;
    }
    return 0;
}

TEST_CASE("one request gets the model's answer and one terminal event", "[actors][scheduler]") {
    SchedulerScript s({}, depth(GENERATE(1u, 2u)));
    const RequestId id = s.submit(prompt_of(20), seeded(3));
    s.run_until_idle();
    REQUIRE(s.reason(id) == FinishReason::stop);
    REQUIRE(s.heard[id].tokens == s.expected(id));
    const Finished& end = s.heard[id].finished[0];
    REQUIRE(end.cause.stop_token == kEndToken);
    REQUIRE(end.usage.prompt_tokens == 20);
    REQUIRE(end.usage.generated_tokens == s.heard[id].tokens.size() + 1);
    REQUIRE(s.stats.finished_total[static_cast<std::size_t>(FinishReason::stop)].get() == 1);
    REQUIRE(s.stats.kv_pages_leased.get() == 0);
    REQUIRE(s.stats.requests_running.get() == 0);
}

TEST_CASE("an answer does not depend on its neighbours, on chunks or on the pipeline",
          "[actors][scheduler]") {
    const auto steps = GENERATE(1u, 2u);
    const auto slots = GENERATE(1u, 3u, 8u);
    SchedulerScript s({.slots_max = slots, .tokens_per_step_max = 24}, depth(steps));
    std::vector<RequestId> ids;
    for (int i = 0; i < 24; ++i) {
        model::DecodingParams params = seeded(static_cast<std::uint64_t>(i % 5));
        if (i % 3 == 0) params.frequency_penalty = 0.5;
        params.min_tokens = i % 4;
        params.max_tokens = 30;
        ids.push_back(s.submit(prompt_of(1 + static_cast<std::size_t>(i) * 5, i % 7), params));
        if (i % 2 == 0) s.turn();
    }
    s.run_until_idle();
    for (const RequestId id : ids)
        REQUIRE(s.heard[id].tokens == s.expected(id));
    REQUIRE(s.stats.kv_pages_leased.get() == 0);
}

TEST_CASE("the n answers of a call differ by their index alone", "[actors][scheduler]") {
    SchedulerScript s;
    std::vector<RequestId> ids;
    for (std::uint32_t i = 0; i < 3; ++i) {
        Submit one;
        one.prompt = prompt_of(40);
        one.params = length_of(20);
        one.answer_index = i;
        ids.push_back(s.submit(std::move(one)));
    }
    s.run_until_idle();
    for (const RequestId id : ids)
        REQUIRE(s.heard[id].tokens == s.expected(id));
    REQUIRE(s.heard[ids[0]].tokens != s.heard[ids[1]].tokens);
    REQUIRE(s.heard[ids[2]].finished[0].usage.cached_tokens == 32);
}

TEST_CASE("a gap that a reader notices is counted as a stall", "[actors][scheduler]") {
    SchedulerScript s;
    (void)s.submit(prompt_of(5), length_of(6));
    while (s.stats.generation_tokens_total.get() < 3)
        s.turn();
    REQUIRE(s.stats.stalls_total.get() == 0);
    s.clock.advance_by(std::chrono::milliseconds(600));
    s.run_until_idle();
    REQUIRE(s.stats.stalls_total.get() == 1);
}

TEST_CASE("the token limit ends an answer with length", "[actors][scheduler]") {
    SchedulerScript s;
    const RequestId three = s.submit(prompt_of(5), length_of(3));
    const RequestId none = s.submit(prompt_of(5), length_of(0));
    s.run_until_idle();
    REQUIRE(s.reason(three) == FinishReason::length);
    REQUIRE(s.heard[three].tokens.size() == 3);
    REQUIRE(s.reason(none) == FinishReason::length);
    REQUIRE(s.heard[none].tokens.empty());
    REQUIRE(s.stats.dropped_rows_total.get() == 0);  // no row is planned beyond a known end
}

TEST_CASE("any token limit is cut to what the context holds", "[actors][scheduler]") {
    SchedulerScript s({.context_length = 64});  // cases.md E2
    const RequestId huge = s.submit(prompt_of(60), length_of(2'147'483'647));
    const RequestId open = s.submit(prompt_of(60), length_of(-1));
    s.run_until_idle();
    REQUIRE(s.reason(huge) == FinishReason::length);
    REQUIRE(s.heard[huge].tokens.size() == 4);
    REQUIRE(s.heard[open].tokens.size() == 4);
}

TEST_CASE("a prompt that can never fit is refused with both numbers", "[actors][scheduler]") {
    SECTION("the context") {
        SchedulerScript s({.context_length = 64});  // cases.md E3
        const RequestId over = s.submit(prompt_of(64));
        const RequestId just = s.submit(prompt_of(63), length_of(5));
        s.run_until_idle();
        REQUIRE(s.heard[over].rejected.size() == 1);
        REQUIRE(s.heard[over].rejected[0].reason == Rejected::Reason::never_fits);
        REQUIRE(s.heard[over].rejected[0].message.find("65") != std::string::npos);
        REQUIRE(s.heard[over].rejected[0].message.find("64") != std::string::npos);
        REQUIRE(s.heard[just].tokens.size() == 1);
    }
    SECTION("the pool") {
        SchedulerScript s({.pages_total = 3});
        const RequestId over = s.submit(prompt_of(48));
        const RequestId just = s.submit(prompt_of(40), length_of(-1));
        s.run_until_idle();
        REQUIRE(s.heard[over].rejected[0].reason == Rejected::Reason::never_fits);
        REQUIRE(s.reason(just) == FinishReason::length);
        REQUIRE(s.heard[just].tokens == s.expected(just));
    }
}

TEST_CASE("beyond waiting_max requests are refused at once, with a time to come back",
          "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 1}, {.waiting_max = 2});
    const RequestId runs = s.submit(prompt_of(10), length_of(50));
    s.turn();
    const RequestId waits = s.submit(prompt_of(10, 1), length_of(1));
    const RequestId waits_too = s.submit(prompt_of(10, 2), length_of(1));
    const RequestId over = s.submit(prompt_of(10, 3), length_of(1));
    s.turn();
    REQUIRE(s.heard[over].rejected.size() == 1);
    REQUIRE(s.heard[over].rejected[0].reason == Rejected::Reason::overloaded);
    REQUIRE(s.heard[over].rejected[0].retry_after_ms >= 1000);
    s.run_until_idle();
    for (const RequestId id : {runs, waits, waits_too})
        REQUIRE(s.reason(id) == FinishReason::length);
}

TEST_CASE("one principal cannot fill the queue", "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 1}, {.waiting_max = 10, .waiting_per_principal_max = 2});
    s.submit(prompt_of(10), length_of(50), {.id = 1});
    s.turn();
    s.submit(prompt_of(10), length_of(1), {.id = 1});
    s.submit(prompt_of(10), length_of(1), {.id = 1});
    const RequestId over = s.submit(prompt_of(10), length_of(1), {.id = 1});
    const RequestId other = s.submit(prompt_of(10), length_of(1), {.id = 2});
    s.run_until_idle();
    REQUIRE(s.heard[over].rejected.size() == 1);
    REQUIRE(s.reason(other) == FinishReason::length);
}

TEST_CASE("a prefix that is being computed is computed once", "[actors][scheduler]") {
    SchedulerScript s({}, depth(GENERATE(1u, 2u)));
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; ++i) {
        Tokens prompt = prompt_of(64);
        prompt.push_back(1 + i);
        ids.push_back(s.submit(std::move(prompt), length_of(1)));
    }
    s.run_until_idle();
    REQUIRE(s.backend.tokens_computed() == 65 + 3);
    for (const RequestId id : ids)
        REQUIRE(s.heard[id].tokens == s.expected(id));
}

TEST_CASE("who waits for a prefix does not hold up those behind", "[actors][scheduler]") {
    SchedulerScript s({.tokens_per_step_max = 40});
    s.submit(prompt_of(200), length_of(1));
    const RequestId same = s.submit(prompt_of(200), length_of(1));
    const RequestId other = s.submit(prompt_of(10, 5), length_of(1));
    s.run_until_ended(other);
    REQUIRE_FALSE(s.heard[same].ended());
    s.run_until_idle();
    REQUIRE(s.heard[same].tokens == s.expected(same));
    REQUIRE(s.heard[same].finished[0].usage.cached_tokens == 192);
}

TEST_CASE("the next turn of a conversation computes what is new", "[actors][scheduler]") {
    SchedulerScript s;
    const RequestId first = s.submit(prompt_of(30), length_of(40));
    s.run_until_idle();
    Tokens next = prompt_of(30);
    next.insert(next.end(), s.heard[first].tokens.begin(), s.heard[first].tokens.end());
    next.push_back(5);
    const RequestId second = s.submit(next, length_of(5));
    s.run_until_idle();
    REQUIRE(s.heard[second].finished[0].usage.cached_tokens == 64);
    REQUIRE(s.heard[second].tokens == s.expected(second));
}

TEST_CASE("cached text under another salt is computed again", "[actors][scheduler]") {
    SchedulerScript s;
    for (const std::uint64_t salt : {1u, 2u}) {
        Submit one;
        one.prompt = prompt_of(40);
        one.params = length_of(2);
        one.cache_salt = salt;
        const RequestId id = s.submit(std::move(one));
        s.run_until_idle();
        REQUIRE(s.heard[id].finished[0].usage.cached_tokens == 0);
        REQUIRE(s.heard[id].tokens == s.expected(id));
    }
}

TEST_CASE("prefill_only warms the cache and draws nothing", "[actors][scheduler]") {
    SchedulerScript s;
    Submit warm;
    warm.prompt = prompt_of(50);
    warm.prefill_only = true;
    const RequestId id = s.submit(std::move(warm));
    s.run_until_idle();
    REQUIRE(s.reason(id) == FinishReason::stop);
    REQUIRE(s.heard[id].tokens.empty());
    REQUIRE(s.heard[id].finished[0].usage.generated_tokens == 0);
    const RequestId after = s.submit(prompt_of(50), length_of(2));
    s.run_until_idle();
    REQUIRE(s.heard[after].finished[0].usage.cached_tokens == 48);
}

TEST_CASE("decode rows run in every step beside a long prompt", "[actors][scheduler]") {
    SchedulerScript s({.tokens_per_step_max = 64}, depth(1));  // cases.md G1, G3
    const RequestId stream = s.submit(prompt_of(4, 1), length_of(400));
    s.turn();
    s.turn();
    const RequestId big = s.submit(prompt_of(480, 2), length_of(1));
    std::size_t drawn = s.heard[stream].tokens.size();
    while (!s.heard[big].ended()) {
        s.turn();
        REQUIRE(s.heard[stream].tokens.size() == ++drawn);
    }
}

TEST_CASE("a long prompt shares each step with a short one behind it", "[actors][scheduler]") {
    SchedulerScript s({.tokens_per_step_max = 64});
    const RequestId big = s.submit(prompt_of(480, 1), length_of(1));
    s.turn();
    const RequestId small = s.submit(prompt_of(20, 2), length_of(1));
    s.turn();
    s.turn();
    s.step();
    REQUIRE(s.heard[small].ended());
    REQUIRE_FALSE(s.heard[big].ended());
    s.run_until_idle();
    REQUIRE(s.heard[big].tokens == s.expected(big));
}

TEST_CASE("with nobody streaming a prompt takes larger slices", "[actors][scheduler]") {
    SchedulerScript s({.tokens_per_step_max = 512},
                      {.step_latency_ms = 10, .prefill_latency_ms = 60});
    s.submit(prompt_of(500, 1), length_of(1));
    s.run_until_idle();
    std::size_t alone = 0;
    for (const auto& plan : s.plans)
        alone = std::max(alone, tokens_of_slot(plan, 0));
    s.plans.clear();
    s.submit(prompt_of(4, 2), length_of(300));
    s.turn();
    s.turn();
    s.submit(prompt_of(500, 3), length_of(1));
    s.run_until_idle();
    std::size_t shared = 0;
    for (const auto& plan : s.plans)
        shared = std::max(shared, plan.tokens.size());
    REQUIRE(alone > 200);
    REQUIRE(shared < 80);  // 10 ms at 0.2 ms a token, and what was tried before it was known
}

TEST_CASE("the second step is sent early behind decode rows only", "[actors][scheduler]") {
    SchedulerScript s({.tokens_per_step_max = 32}, depth(2));
    s.submit(prompt_of(60), length_of(20));
    s.step();
    s.step();
    REQUIRE(s.executor.outstanding() == 1);  // a slice of the prompt
    s.compute();
    s.step();
    s.compute();
    s.step();
    REQUIRE(s.executor.outstanding() == 1);
    s.step();
    REQUIRE(s.executor.outstanding() == 2);  // behind a decode row
    REQUIRE(s.plans.back().tokens == Tokens{model::kDrawnToken});
}

TEST_CASE("a row that was computed beyond the end is dropped", "[actors][scheduler]") {
    SchedulerScript s({}, depth(2));
    const RequestId id = s.submit(prompt_of(20), seeded(3));
    s.step();
    s.compute();
    while (!s.heard[id].ended()) {
        s.step();
        if (s.heard[id].ended()) break;
        s.step();
        s.compute();
    }
    REQUIRE(s.stats.kv_pages_leased.get() > 0);  // a submitted step still names its pages
    s.run_until_idle();
    REQUIRE(s.stats.dropped_rows_total.get() == 1);
    REQUIRE(s.heard[id].tokens == s.expected(id));
    REQUIRE(s.stats.kv_pages_leased.get() == 0);
}

TEST_CASE("clients hear of their place when it changes, at most a few times a second",
          "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 1, .row_ns = 50'000'000}, depth(1));
    for (int i = 0; i < 3; ++i)
        s.submit(prompt_of(5, i), length_of(20));
    s.run_until_idle();
    REQUIRE(s.heard[1].positions.empty());
    REQUIRE(s.heard[2].positions == std::vector<std::uint32_t>{0});
    REQUIRE(s.heard[3].positions == std::vector<std::uint32_t>{1, 0});
}

TEST_CASE("clients of long prompts hear of their progress", "[actors][scheduler]") {
    SchedulerScript s({.tokens_per_step_max = 16, .prompt_token_ns = 10'000'000});
    const RequestId id = s.submit(prompt_of(200), length_of(1));
    s.run_until_idle();
    const auto& progress = s.heard[id].progress;
    REQUIRE(progress.size() >= 3);
    REQUIRE(progress.size() <= 8);  // 2 s of prefill
    for (std::size_t i = 1; i < progress.size(); ++i) {
        REQUIRE(progress[i].prompt_done > progress[i - 1].prompt_done);
        REQUIRE(progress[i].prompt_total == 200);
    }
}

}  // namespace
}  // namespace troupe::actors
