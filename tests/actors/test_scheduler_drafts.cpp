// Speculative decoding in the scheduler: with drafts every answer is what it is without them.
#include <algorithm>

#include "tests/actors/scheduler_script.hpp"
#include "tools/simulation/letter_tokenizer.hpp"

namespace troupe::actors {
namespace {

// Another row costs a hundredth of a step.
FakeBackendOptions cheap_rows() {
    return {.step_ns = 1'000'000, .row_ns = 10'000};
}

// An answer that repeats itself every `period` tokens.
model::DecodingParams looping(std::int32_t period, std::int32_t max_tokens) {
    model::DecodingParams params = length_of(max_tokens);
    params.top_k = period;
    params.temperature = 0;
    return params;
}

// A text of two letters, in which everything has been before, for a model that draws one of them by
// chance: about half of all guesses are right.
Tokens coin_prompt(std::size_t length) {
    Tokens tokens(length);
    for (std::size_t i = 0; i < length; ++i)
        tokens[i] = 1 + static_cast<model::TokenId>((i * i / 3 + i) % 2);
    return tokens;
}

FakeBackendOptions coin_model() {
    FakeBackendOptions options = cheap_rows();
    options.vocabulary_size = 3;
    return options;
}

std::size_t draft_tokens_of(const model::StepPlan& plan) {
    std::size_t count = 0;
    for (const auto& sequence : plan.sequences)
        count += sequence.sample_count > 1 ? sequence.sample_count - 1 : 0;
    return count;
}

TEST_CASE("a text that repeats itself is drawn in few steps", "[actors][drafts]") {
    SchedulerScript s(cheap_rows());
    const RequestId id = s.submit(prompt_of(20), looping(5, 100));
    s.run_until_idle();
    REQUIRE(s.heard[id].tokens == s.expected(id));
    REQUIRE(s.plans.size() < 30);
    const Usage& usage = s.heard[id].finished[0].usage;
    REQUIRE(usage.generated_tokens == 100);
    REQUIRE(usage.draft_tokens == usage.accepted_tokens);
    REQUIRE(usage.accepted_tokens > 70);
    REQUIRE(s.stats.draft_tokens_total.get() == usage.draft_tokens);
    REQUIRE(s.stats.accepted_tokens_total.get() == usage.accepted_tokens);
    REQUIRE(s.stats.drafts_total.get() > 0);
    REQUIRE(s.stats.dropped_rows_total.get() == 0);  // no draft reaches beyond a known end
}

TEST_CASE("drafts that are wrong, in part or at all, change nothing", "[actors][drafts]") {
    const auto steps = GENERATE(1u, 2u);
    SchedulerScript s(coin_model(), {.pipeline_depth = steps});
    std::vector<RequestId> ids;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
        model::DecodingParams params = length_of(60);
        params.seed = seed;
        if (seed % 3 == 0) params.frequency_penalty = 0.5;
        ids.push_back(s.submit(coin_prompt(30 + seed), params));
        if (seed % 2 == 0) s.run_until_ended(ids.back());
    }
    s.run_until_idle();
    std::uint32_t proposed = 0, accepted = 0;
    for (const RequestId id : ids) {
        REQUIRE(s.heard[id].tokens == s.expected(id));
        proposed += s.heard[id].finished[0].usage.draft_tokens;
        accepted += s.heard[id].finished[0].usage.accepted_tokens;
    }
    REQUIRE(accepted > 50);
    REQUIRE(proposed - accepted > 50);
}

TEST_CASE("an end token in the middle of a draft ends the answer there", "[actors][drafts]") {
    std::uint32_t inside = 0;
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        SchedulerScript s(coin_model());
        model::DecodingParams params = seeded(seed);
        params.min_tokens = static_cast<std::int32_t>(seed % 5);
        const RequestId id = s.submit(coin_prompt(40), params);
        s.run_until_idle();
        REQUIRE(s.reason(id) == FinishReason::stop);
        REQUIRE(s.heard[id].tokens == s.expected(id));
        REQUIRE(s.heard[id].finished[0].usage.generated_tokens == s.heard[id].tokens.size() + 1);
        REQUIRE(s.stats.kv_pages_leased.get() == 0);
        inside += draft_tokens_of(s.plans.back()) > 0;
    }
    REQUIRE(inside > 3);
}

TEST_CASE("a stop string in the middle of a draft ends the answer there", "[actors][drafts]") {
    const simulation::LetterTokenizer tokenizer;
    SchedulerScript s(cheap_rows(), {.tokenizer = &tokenizer});
    const RequestId whole = s.submit(prompt_of(20), looping(5, 60));
    s.run_until_idle();
    model::DecodingParams params = looping(5, 60);
    for (std::size_t i = 0; i < 18; ++i)
        params.stop.resize(1), params.stop[0] += tokenizer.bytes_of(s.heard[whole].tokens[i]);
    const RequestId id = s.submit(prompt_of(20), params);
    s.run_until_idle();
    REQUIRE(s.reason(id) == FinishReason::stop);
    REQUIRE(s.heard[id].finished[0].cause.stop_string == 0);
    REQUIRE(s.heard[id].tokens.size() == 18);
    REQUIRE(draft_tokens_of(s.plans.back()) > 0);
}

TEST_CASE("whatever the limit, no draft reaches beyond it", "[actors][drafts]") {
    SchedulerScript s(cheap_rows());
    for (std::int32_t limit = 9; limit < 30; ++limit) {
        const RequestId id = s.submit(prompt_of(20), looping(5, limit));
        s.run_until_idle();
        REQUIRE(s.heard[id].tokens == s.expected(id));
        REQUIRE(s.reason(id) == FinishReason::length);
    }
    for (const auto& plan : s.plans) {
        for (const auto& sequence : plan.sequences)
            REQUIRE(sequence.position + sequence.token_count < 20 + 30);
    }
    REQUIRE(s.stats.dropped_rows_total.get() == 0);
}

TEST_CASE("a request is cancelled while its draft is being verified", "[actors][drafts]") {
    SchedulerScript s(cheap_rows());
    const RequestId id = s.submit(prompt_of(20), looping(5, 100));
    s.step();
    while (draft_tokens_of(s.plans.back()) == 0) {
        if (s.executor.outstanding() > 0) s.compute();
        s.step();
    }
    s.cancel(id);
    s.step();
    REQUIRE(s.reason(id) == FinishReason::cancelled);
    REQUIRE(s.stats.kv_pages_leased.get() > 0);  // the step names its pages
    s.run_until_idle();
    REQUIRE(s.stats.kv_pages_leased.get() == 0);
    Tokens expected = s.expected(id);
    expected.resize(s.heard[id].tokens.size());
    REQUIRE(s.heard[id].tokens == expected);
}

TEST_CASE("preempted and resumed, with drafts, an answer stays the same", "[actors][drafts]") {
    FakeBackendOptions options = cheap_rows();
    options.pages_total = 12;
    SchedulerScript s(std::move(options));
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; ++i)
        ids.push_back(s.submit(prompt_of(20 + static_cast<std::size_t>(i), i), looping(4 + i, 90)));
    s.run_until_idle();
    REQUIRE(s.stats.preemptions_total.get() > 0);
    REQUIRE(s.stats.accepted_tokens_total.get() > 0);
    for (const RequestId id : ids)
        REQUIRE(s.heard[id].tokens == s.expected(id));
}

TEST_CASE("a draft goes over the edge of a page where pages are plenty", "[actors][drafts]") {
    SchedulerScript s(cheap_rows());
    const RequestId id = s.submit(prompt_of(20), looping(5, 100));
    s.run_until_idle();
    REQUIRE(s.heard[id].tokens == s.expected(id));
    const auto crosses = [](const model::StepPlan& plan) {
        return std::ranges::any_of(plan.sequences, [](const model::SequenceStep& sequence) {
            const std::uint32_t last = sequence.position + sequence.token_count - 1;
            return sequence.sample_count > 1 && sequence.position / 16 != last / 16;
        });
    };
    REQUIRE(std::ranges::any_of(s.plans, crosses));
}

TEST_CASE("nobody is sent away to make room for a draft", "[actors][drafts]") {
    FakeBackendOptions options = cheap_rows();
    options.pages_total = 14;  // exactly what both need in the end
    SchedulerScript s(std::move(options));
    const RequestId one = s.submit(prompt_of(20), looping(5, 92));
    const RequestId two = s.submit(prompt_of(20, 1), looping(7, 92));
    s.run_until_idle();
    REQUIRE(s.stats.preemptions_total.get() == 0);
    REQUIRE(s.stats.accepted_tokens_total.get() > 0);
    REQUIRE(s.heard[one].tokens == s.expected(one));
    REQUIRE(s.heard[two].tokens == s.expected(two));
}

TEST_CASE("one request's drafts take next to nothing from another without", "[actors][drafts]") {
    const bool cheap = GENERATE(true, false);
    FakeBackendOptions options = cheap_rows();
    options.row_ns = cheap ? 1'000 : 200'000;
    SchedulerScript s(std::move(options));
    const RequestId drafts = s.submit(prompt_of(20), looping(5, 80));
    const RequestId plain = s.submit(prompt_of(20, 1), length_of(80));
    s.run_until_idle();
    const std::uint32_t accepted = s.heard[drafts].finished[0].usage.accepted_tokens;
    REQUIRE((cheap ? accepted > 20 : accepted < 8));  // eight: until the cost of a row is known
    REQUIRE(s.heard[drafts].tokens == s.expected(drafts));
    REQUIRE(s.heard[plain].tokens == s.expected(plain));
}

TEST_CASE("requests that all repeat themselves draft side by side", "[actors][drafts]") {
    SchedulerScript s;
    const RequestId one = s.submit(prompt_of(20), looping(5, 80));
    const RequestId two = s.submit(prompt_of(20, 1), looping(6, 80));
    s.run_until_idle();
    REQUIRE(s.heard[one].finished[0].usage.accepted_tokens > 40);
    REQUIRE(s.heard[two].finished[0].usage.accepted_tokens > 40);
    REQUIRE(s.heard[one].tokens == s.expected(one));
    REQUIRE(s.heard[two].tokens == s.expected(two));
}

TEST_CASE("no step is sent behind one that verifies a draft", "[actors][drafts]") {
    SchedulerScript s(cheap_rows(), {.pipeline_depth = 2});
    const RequestId id = s.submit(prompt_of(20), looping(5, 100));
    bool verified = false;
    while (!s.heard[id].ended()) {
        s.step();
        if (s.executor.outstanding() == 0) continue;
        if (draft_tokens_of(s.plans.back()) > 0) {
            verified = true;
            s.step();
            REQUIRE(s.executor.outstanding() == 1);
        }
        s.compute();
    }
    REQUIRE(verified);
}

TEST_CASE("drafts can be refused by the server and by the request", "[actors][drafts]") {
    const bool by_server = GENERATE(true, false);
    SchedulerSettings settings;
    settings.speculation.lookup = !by_server;
    SchedulerScript s(cheap_rows(), std::move(settings));
    model::DecodingParams params = looping(5, 60);
    params.speculation = by_server;
    const RequestId id = s.submit(prompt_of(20), params);
    s.run_until_idle();
    REQUIRE(s.heard[id].tokens == s.expected(id));
    REQUIRE(s.stats.drafts_total.get() == 0);
}

TEST_CASE("a step that carries a prompt has no drafts", "[actors][drafts]") {
    SchedulerScript s(cheap_rows());
    s.submit(prompt_of(20), looping(5, 300));
    for (int i = 0; i < 12; ++i)
        s.turn();
    s.submit(prompt_of(400, 1), length_of(1));
    s.run_until_idle();
    for (const auto& plan : s.plans) {
        const bool prompt = std::ranges::any_of(plan.sequences, [](const auto& sequence) {
            return sequence.token_count > std::max(sequence.sample_count, 1u);
        });
        REQUIRE((!prompt || draft_tokens_of(plan) == 0));
    }
}

}  // namespace
}  // namespace troupe::actors
