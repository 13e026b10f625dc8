// How requests end, and who must not notice: stops, cancels, deadlines, preemption, failures.
#include <string>

#include "tests/actors/scheduler_script.hpp"
#include "tools/simulation/letter_tokenizer.hpp"

namespace troupe::actors {
namespace {

std::string letters(const Tokens& tokens) {
    std::string text;
    for (const model::TokenId token : tokens)
        text += static_cast<char>('a' + token - 1);
    return text;
}

const simulation::LetterTokenizer tokenizer;

TEST_CASE("a stop string ends the answer at the token that completes it", "[actors][scheduler]") {
    SchedulerScript s({}, {.tokenizer = &tokenizer, .pipeline_depth = GENERATE(1u, 2u)});
    const RequestId plain = s.submit(prompt_of(20), length_of(60));
    s.run_until_idle();
    const std::string text = letters(s.heard[plain].tokens);
    auto params = length_of(60);
    params.stop = {text.substr(30, 3), text.substr(9, 4), "never"};
    const RequestId id = s.submit(prompt_of(20), params);
    s.run_until_idle();
    REQUIRE(s.reason(id) == FinishReason::stop);
    REQUIRE(s.heard[id].finished[0].cause.stop_string == 1);
    REQUIRE(letters(s.heard[id].tokens) == text.substr(0, 13));
    REQUIRE(s.heard[id].finished[0].usage.generated_tokens == 13);
}

TEST_CASE("the stop string that completes first wins, whatever its place in the list",
          "[actors][scheduler]") {
    SchedulerScript s({}, {.tokenizer = &tokenizer});  // cases.md B9
    const RequestId plain = s.submit(prompt_of(20), length_of(60));
    s.run_until_idle();
    const std::string text = letters(s.heard[plain].tokens);
    const std::vector<std::string> stops{text.substr(10, 6), text.substr(12, 2)};
    for (const bool reversed : {false, true}) {
        auto params = length_of(60);
        params.stop = reversed ? std::vector{stops[1], stops[0]} : stops;
        const RequestId id = s.submit(prompt_of(20), params);
        s.run_until_idle();
        REQUIRE(s.heard[id].finished[0].cause.stop_string == (reversed ? 0 : 1));
        REQUIRE(s.heard[id].tokens.size() == 14);
    }
}

TEST_CASE("a stop token ends the answer and is not part of it", "[actors][scheduler]") {
    SchedulerScript s;
    const RequestId plain = s.submit(prompt_of(20), length_of(60));
    s.run_until_idle();
    const Tokens all = s.heard[plain].tokens;
    auto params = length_of(60);
    params.stop_token_ids = {all[7]};
    const RequestId id = s.submit(prompt_of(20), params);
    s.run_until_idle();
    REQUIRE(s.heard[id].finished[0].cause.stop_token == all[7]);
    const auto first = std::find(all.begin(), all.end(), all[7]);
    REQUIRE(s.heard[id].tokens == Tokens(all.begin(), first));
}

TEST_CASE("a cancelled request that waits never runs", "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 1});  // cases.md A3, A6
    const RequestId runs = s.submit(prompt_of(10), length_of(30));
    s.turn();
    const RequestId waits = s.submit(prompt_of(10, 1), length_of(30));
    s.turn();
    s.cancel(waits);
    s.step();
    REQUIRE(s.reason(waits) == FinishReason::cancelled);
    s.run_until_idle();
    REQUIRE(s.backend.tokens_computed() == 10 + 29);
    REQUIRE(s.reason(runs) == FinishReason::length);
}

TEST_CASE("a request whose client left before it was read is never admitted",
          "[actors][scheduler]") {
    SchedulerScript s;
    const RequestId id = s.submit(prompt_of(10), length_of(30));
    s.cancel(id);
    s.run_until_idle();
    REQUIRE(s.reason(id) == FinishReason::cancelled);
    REQUIRE(s.backend.tokens_computed() == 0);
}

TEST_CASE("a cancel between two slices of a prompt takes effect at once", "[actors][scheduler]") {
    SchedulerScript s({.tokens_per_step_max = 32});  // cases.md A4
    const RequestId id = s.submit(prompt_of(300), length_of(30));
    s.turn();
    s.turn();
    s.cancel(id);
    s.turn();
    REQUIRE(s.reason(id) == FinishReason::cancelled);
    s.run_until_idle();
    REQUIRE(s.backend.tokens_computed() <= 96);
    REQUIRE(s.stats.kv_pages_leased.get() == 0);
    REQUIRE(s.stats.kv_pages_cached.get() > 0);  // what was computed is kept
}

TEST_CASE("a cancelled request's pages come back when no submitted step names them",
          "[actors][scheduler]") {
    SchedulerScript s({}, {.pipeline_depth = 2});  // cases.md A15
    const RequestId id = s.submit(prompt_of(20), length_of(100));
    for (int i = 0; i < 5; ++i)
        s.turn();
    s.step();
    s.step();
    REQUIRE(s.executor.outstanding() == 2);
    s.cancel(id);
    s.step();
    REQUIRE(s.reason(id) == FinishReason::cancelled);
    REQUIRE(s.heard[id].finished[0].usage.generated_tokens == s.heard[id].tokens.size());
    REQUIRE(s.stats.cancelled_tokens_total.get() == s.heard[id].tokens.size());
    REQUIRE(s.stats.kv_pages_leased.get() > 0);
    s.compute();
    s.step();
    REQUIRE(s.stats.kv_pages_leased.get() > 0);
    s.compute();
    s.step();
    REQUIRE(s.stats.kv_pages_leased.get() == 0);
}

TEST_CASE("cancelling twice, too late or somebody unknown is harmless", "[actors][scheduler]") {
    SchedulerScript s;  // cases.md A8
    const RequestId id = s.submit(prompt_of(20), length_of(10));
    s.turn();
    s.cancel(id);
    s.cancel(id);
    s.cancel(777);
    s.turn();
    s.cancel(id);
    s.run_until_idle();
    s.cancel(id);
    s.run_until_idle();
    REQUIRE(s.reason(id) == FinishReason::cancelled);
}

TEST_CASE("many aborted requests leave every gauge at zero", "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 4, .pages_total = 40});  // cases.md A7, A17
    for (int i = 0; i < 500; ++i) {
        const RequestId id = s.submit(prompt_of(1 + static_cast<std::size_t>(i * 13 % 90), i), {});
        for (int t = 0; t < i % 4; ++t)
            s.turn();
        s.cancel(id);
    }
    s.run_until_idle();
    REQUIRE(s.stats.requests_running.get() == 0);
    REQUIRE(s.stats.requests_waiting.get() == 0);
    REQUIRE(s.stats.kv_pages_leased.get() == 0);
    const RequestId after = s.submit(prompt_of(30), length_of(10));
    s.run_until_idle();
    REQUIRE(s.heard[after].tokens == s.expected(after));
}

TEST_CASE("a deadline ends a request that waits and one that runs", "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 1});
    for (int i = 0; i < 2; ++i) {
        Submit one;
        one.prompt = prompt_of(10, i);
        one.params = length_of(450);
        one.deadline = s.clock.now() + 100ms;
        s.submit(std::move(one));
    }
    s.run_until_idle();
    for (const RequestId id : {1u, 2u})
        REQUIRE(s.reason(id) == FinishReason::deadline);
    REQUIRE(s.heard[1].tokens.size() > 10);
    REQUIRE(s.heard[2].tokens.empty());
}

TEST_CASE("out of pages the youngest is preempted and its answer stays the same",
          "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 4, .pages_total = 6},
                      {.pipeline_depth = GENERATE(1u, 2u)});  // cases.md C15, C16, C17
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; ++i) {
        auto params = length_of(50);
        params.presence_penalty = 0.5;
        ids.push_back(s.submit(prompt_of(14, i), params));
    }
    s.run_until_ended(ids[0]);
    for (std::size_t i = 1; i < 4; ++i)
        REQUIRE_FALSE(s.heard[ids[i]].ended());
    s.run_until_idle();
    REQUIRE(s.stats.preemptions_total.get() > 0);
    for (const RequestId id : ids) {
        REQUIRE(s.reason(id) == FinishReason::length);
        REQUIRE(s.heard[id].tokens == s.expected(id));
        REQUIRE(s.heard[id].finished[0].usage.generated_tokens == 50);
    }
}

TEST_CASE("a preempted request goes before everybody who waits", "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 2, .pages_total = 6});
    const RequestId old = s.submit(prompt_of(14, 0), length_of(60));
    const RequestId young = s.submit(prompt_of(14, 1), length_of(60));
    s.turn();
    const RequestId waits = s.submit(prompt_of(14, 2), length_of(60));
    s.run_until_ended(young);
    REQUIRE(s.stats.preemptions_total.get() > 0);
    REQUIRE(s.heard[old].ended());
    REQUIRE_FALSE(s.heard[waits].ended());
    s.run_until_idle();
    REQUIRE(s.heard[waits].tokens == s.expected(waits));
}

TEST_CASE("a preempted request can be cancelled before it comes back", "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 2, .pages_total = 5});
    const RequestId old = s.submit(prompt_of(14, 0), length_of(60));
    const RequestId young = s.submit(prompt_of(14, 1), length_of(60));
    while (s.stats.preemptions_total.get() == 0)
        s.turn();
    s.cancel(young);
    s.run_until_idle();
    REQUIRE(s.reason(young) == FinishReason::cancelled);
    REQUIRE(s.heard[old].tokens == s.expected(old));
}

TEST_CASE("a request of the pool's own size runs to its end alone", "[actors][scheduler]") {
    SchedulerScript s({.pages_total = 4});
    const RequestId first = s.submit(prompt_of(32), length_of(-1));
    const RequestId second = s.submit(prompt_of(32), length_of(-1));
    s.run_until_idle();
    for (const RequestId id : {first, second}) {
        REQUIRE(s.reason(id) == FinishReason::length);
        REQUIRE(s.heard[id].tokens == s.expected(id));
    }
}

TEST_CASE("shutdown finishes what lives, refuses what is new, and ends", "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 1});
    const RequestId runs = s.submit(prompt_of(10), length_of(20));
    const RequestId waits = s.submit(prompt_of(10, 1), length_of(20));
    s.turn();
    s.shutdown(10s);
    const RequestId late = s.submit(prompt_of(10, 2), length_of(20));
    s.turn();
    REQUIRE(s.heard[late].rejected.at(0).reason == Rejected::Reason::shutting_down);
    REQUIRE_FALSE(s.output.stopped);
    s.run_until_idle();
    REQUIRE(s.output.stopped);
    for (const RequestId id : {runs, waits})
        REQUIRE(s.heard[id].tokens == s.expected(id));
}

TEST_CASE("shutdown out of patience ends everybody", "[actors][scheduler]") {
    SchedulerScript s({.slots_max = 1});
    const RequestId runs = s.submit(prompt_of(10), length_of(400));
    const RequestId waits = s.submit(prompt_of(10, 1), length_of(400));
    s.turn();
    s.shutdown(50ms);
    s.run_until_idle();
    REQUIRE(s.output.stopped);
    REQUIRE(s.reason(runs) == FinishReason::shutdown);
    REQUIRE(s.reason(waits) == FinishReason::shutdown);
}

TEST_CASE("a row whose scores are not finite fails its request alone", "[actors][scheduler]") {
    int rows = 0;
    SchedulerScript s({.fail_row = [&] { return ++rows == 20; }});
    std::vector<RequestId> ids;
    for (int i = 0; i < 3; ++i)
        ids.push_back(s.submit(prompt_of(10, i), length_of(30)));
    s.run_until_idle();
    int failed = 0;
    for (const RequestId id : ids) {
        if (s.reason(id) == FinishReason::error) {
            ++failed;
            REQUIRE_FALSE(s.heard[id].finished[0].error.empty());
        } else {
            REQUIRE(s.heard[id].tokens == s.expected(id));
        }
    }
    REQUIRE(failed == 1);
}

TEST_CASE("a lost backend ends every live request and the next ones are served",
          "[actors][scheduler]") {
    int steps = 0;
    SchedulerScript s({.slots_max = 2, .fail_step = [&] { return ++steps == 6; }},
                      {.pipeline_depth = GENERATE(1u, 2u)});
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; ++i)
        ids.push_back(s.submit(prompt_of(10, i), length_of(100)));
    s.run_until_idle();
    for (const RequestId id : ids) {
        REQUIRE(s.reason(id) == FinishReason::error);
        REQUIRE(s.heard[id].finished[0].error == "the fake device was lost");
    }
    REQUIRE(s.stats.restarts_total.get() == 1);
    const RequestId after = s.submit(prompt_of(10), length_of(30));
    s.run_until_idle();
    REQUIRE(s.heard[after].tokens == s.expected(after));
    REQUIRE(s.stats.kv_pages_leased.get() == 0);
}

}  // namespace
}  // namespace troupe::actors
