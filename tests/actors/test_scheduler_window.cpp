// Sequences with a window: the model's answer whatever surrounds it, memory that does not grow, and
// prompts and answers longer than the pool.
#include "tests/actors/scheduler_script.hpp"

namespace troupe::actors {
namespace {

constexpr model::AttentionWindow kWindow{.tokens = 40, .sinks = 5};

FakeBackendOptions windowed(std::uint32_t pages, std::uint32_t step_tokens = 32) {
    return {.context_length = 4'096,
            .pages_total = pages,
            .tokens_per_step_max = step_tokens,
            .window = kWindow};
}

}  // namespace

TEST_CASE("leased pages stay few while an answer grows far past the window",
          "[actors][scheduler][window]") {
    SchedulerScript s(windowed(64), {.pipeline_depth = GENERATE(1u, 2u)});
    const RequestId id = s.submit(prompt_of(20), length_of(700));
    std::uint32_t most = 0;
    while (!s.heard[id].ended()) {
        s.turn();
        most = std::max(most, s.scheduler->cache().stats().pages_leased);
    }
    CHECK(most <= kWindow.pages_max(32));
    CHECK(s.heard[id].tokens == s.expected(id));
    CHECK(s.heard[id].tokens.size() == 700);
    s.run_until_idle();
    CHECK(s.stats.kv_pages_leased.get() == 0);
}

TEST_CASE("a prompt and an answer longer than the pool run through a window",
          "[actors][scheduler][window]") {
    SchedulerScript s(windowed(kWindow.pages_max(32) + 1));
    const RequestId id = s.submit(prompt_of(600), length_of(300));
    s.run_until_idle();
    CHECK(s.reason(id) == FinishReason::length);
    CHECK(s.heard[id].tokens == s.expected(id));
    CHECK(s.heard[id].tokens.size() == 300);
}

TEST_CASE("a pool too small for a window still holds what fits", "[actors][scheduler][window]") {
    SchedulerScript s(windowed(4));
    const RequestId fits = s.submit(prompt_of(30), length_of(100));
    const RequestId never = s.submit(prompt_of(65), length_of(1));
    s.run_until_idle();
    CHECK(s.heard[fits].tokens == s.expected(fits));
    CHECK(s.heard[fits].tokens.size() == 34);
    CHECK(s.heard[never].rejected.size() == 1);
}

TEST_CASE("with a window, too, answers do not depend on neighbours, chunks, hits and preemption",
          "[actors][scheduler][window]") {
    const auto pages = GENERATE(8u, 12u, 20u, 200u);
    const auto step_tokens = GENERATE(8u, 24u, 128u);
    if (pages <= kWindow.pages_max(step_tokens)) return;
    SchedulerScript s(windowed(pages, step_tokens), {.pipeline_depth = GENERATE(1u, 2u)});
    std::vector<RequestId> ids;
    for (int i = 0; i < 24; ++i) {
        model::DecodingParams params = seeded(static_cast<std::uint64_t>(i % 5));
        if (i % 3 == 0) params.frequency_penalty = 0.5;
        params.ignore_eos = i % 2 == 0;
        params.max_tokens = 60 + i;
        ids.push_back(s.submit(prompt_of(1 + static_cast<std::size_t>(i) * 9, i % 4), params));
        if (i % 2 == 0) s.turn();
        if (i % 7 == 6) s.cancel(ids[static_cast<std::size_t>(i) - 3]);
    }
    s.run_until_idle();
    for (const RequestId id : ids) {
        const Tokens expected = s.expected(id);
        const Tokens& heard = s.heard[id].tokens;
        const bool cancelled = s.reason(id) == FinishReason::cancelled;
        REQUIRE((heard == expected || (cancelled && heard.size() < expected.size())));
    }
    CHECK(s.stats.kv_pages_leased.get() == 0);
}

TEST_CASE("a long conversation finds its pages again behind the window",
          "[actors][scheduler][window]") {
    SchedulerScript s(windowed(64));
    const RequestId first = s.submit(prompt_of(200), length_of(20));
    s.run_until_idle();
    Tokens next = prompt_of(200);
    next.insert(next.end(), s.heard[first].tokens.begin(), s.heard[first].tokens.end());
    next.push_back(3);
    const RequestId second = s.submit(next, length_of(20));
    s.run_until_idle();
    CHECK(s.heard[second].tokens == s.expected(second));
    CHECK(s.heard[second].finished[0].usage.cached_tokens == 208);
}

}  // namespace troupe::actors
