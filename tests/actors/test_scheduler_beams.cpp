// Beam search in the scheduler: a group of sequences lives, forks, dies and ends as one request.
#include <algorithm>
#include <string>

#include "actors/beam_group.hpp"
#include "tests/actors/scheduler_script.hpp"
#include "tools/simulation/expected_answer.hpp"
#include "tools/simulation/letter_tokenizer.hpp"

namespace troupe::actors {
namespace {

using simulation::expected_answer;
using simulation::ExpectedAnswer;

const simulation::LetterTokenizer tokenizer;

Submit beams(Tokens prompt, std::int32_t width, std::int32_t max_tokens,
             std::uint32_t answers = 1) {
    Submit submit;
    submit.prompt = std::move(prompt);
    submit.params.beam_width = width;
    submit.params.max_tokens = max_tokens;
    submit.answers = answers;
    return submit;
}

// As `beams`, but no end token ends it before its time.
Submit endless_beams(Tokens prompt, std::int32_t width, std::int32_t max_tokens) {
    Submit submit = beams(std::move(prompt), width, max_tokens);
    submit.params.ignore_eos = true;
    return submit;
}

ExpectedAnswer expected(const SchedulerScript& s, RequestId asked, std::uint32_t answer = 0) {
    const model::BackendInfo& info = s.backend.info();
    return expected_answer(
        s.asked.at(asked),
        {.sequence_tokens_max = std::min(info.context_length, info.pages_total * 16),
         .pages_total = info.pages_total,
         .vocabulary_size = info.vocabulary_size},
        answer);
}

void check_answer(SchedulerScript& s, RequestId asked, std::uint32_t answer = 0) {
    const ExpectedAnswer right = expected(s, asked, answer);
    const RequestId id = asked + answer;
    REQUIRE(s.reason(id) == right.reason);
    REQUIRE(s.heard[id].tokens == right.tokens);
    REQUIRE(s.heard[id].finished[0].cause == right.cause);
    const std::size_t ended_by_token = right.cause.stop_token >= 0 ? 1 : 0;
    REQUIRE(s.heard[id].finished[0].usage.generated_tokens == right.tokens.size() + ended_by_token);
}

std::uint32_t leased(const SchedulerScript& s) {
    return s.stats.kv_pages_leased.get();
}

TEST_CASE("a beam search gives the best answers, each with one terminal event",
          "[actors][scheduler][beams]") {
    SchedulerScript s({}, {.pipeline_depth = GENERATE(1u, 2u)});
    const auto width = GENERATE(2, 4, 8);
    const auto answers = static_cast<std::uint32_t>(width) / 2;
    const RequestId ends = s.submit(beams(prompt_of(20), width, 40, answers));
    const RequestId long_one = s.submit(endless_beams(prompt_of(20, 1), width, 40));
    s.run_until_idle();
    for (std::uint32_t answer = 0; answer < answers; ++answer)
        check_answer(s, ends, answer);
    check_answer(s, long_one);
    REQUIRE(s.heard[long_one].tokens.size() == 40);
    REQUIRE(s.heard[ends].finished[0].usage.prompt_tokens == 20);
    REQUIRE(s.heard[ends].progress.back().prompt_done == 20);
    REQUIRE(leased(s) == 0);
    REQUIRE(s.stats.requests_running.get() == 0);
}

TEST_CASE("beams answer the same alone and beside eight others, which do not notice",
          "[actors][scheduler][beams]") {
    const auto steps = GENERATE(1u, 2u);
    SchedulerScript alone({.slots_max = 16}, {.pipeline_depth = steps});
    const RequestId one = alone.submit(endless_beams(prompt_of(37), 4, 50));
    alone.run_until_idle();
    SchedulerScript s({.slots_max = 16, .pages_total = 200, .tokens_per_step_max = 40},
                      {.pipeline_depth = steps});
    std::vector<RequestId> others;
    for (int i = 0; i < 8; ++i) {
        others.push_back(s.submit(prompt_of(static_cast<std::size_t>(20 + i), i), length_of(70)));
        if (i % 3 == 0) s.turn();
    }
    const RequestId among = s.submit(endless_beams(prompt_of(37), 4, 50));
    s.run_until_idle();
    REQUIRE(s.heard[among].tokens == alone.heard[one].tokens);
    for (const RequestId id : others)
        REQUIRE(s.heard[id].tokens == s.expected(id));
}

TEST_CASE("forks share all full pages and copy the last one only", "[actors][scheduler][beams]") {
    SchedulerScript s({}, {.pipeline_depth = 1});
    s.submit(endless_beams(prompt_of(36), 4, 30));
    s.turn();  // the prompt
    REQUIRE(s.plans.back().copies.empty());
    s.step();
    const model::StepPlan& plan = s.plans.back();
    REQUIRE(plan.sequences.size() == 4);
    REQUIRE(plan.opens.size() == 3);
    REQUIRE(plan.copies.size() == 3);
    for (const model::PageCopy& copy : plan.copies) {
        REQUIRE(copy.tokens == 36 % 16);
        REQUIRE(copy.from == plan.copies.front().from);
    }
    // Two pages of the prompt once; the first beam's tail and growth; a tail for each fork.
    REQUIRE(leased(s) == 2 + 2 + 3);
    s.compute();
    s.run_until_idle();
}

TEST_CASE("a beam that dies leaves its slot and its page to a fork in the same step",
          "[actors][scheduler][beams]") {
    SchedulerScript s({.slots_max = 4}, {.pipeline_depth = 1});
    const RequestId id = s.submit(endless_beams(prompt_of(20), 4, 60));
    std::size_t moved = 0;
    std::uint32_t most = 0;
    while (!s.heard[id].ended()) {
        s.turn();
        const model::StepPlan& plan = s.plans.back();
        for (const model::SlotId slot : plan.closes) {
            moved += static_cast<std::size_t>(
                std::ranges::count(plan.opens, slot, &model::SlotOpen::slot));
        }
        most = std::max(most, leased(s));
    }
    REQUIRE(moved > 10);
    REQUIRE(most <= beam_pages(4, 20, 80));
    check_answer(s, id);
    s.run_until_idle();
    REQUIRE(leased(s) == 0);
}

TEST_CASE("a beam search that is cancelled ends each of its answers once and gives all back",
          "[actors][scheduler][beams]") {
    SchedulerScript s({.slots_max = 4}, {.pipeline_depth = GENERATE(1u, 2u)});
    Submit submit = endless_beams(prompt_of(20), 4, 60);
    submit.answers = 3;
    const auto turns = GENERATE(0, 1, 2, 7);
    const RequestId id = s.submit(std::move(submit));
    for (int i = 0; i < turns; ++i)
        s.turn();
    s.step();
    s.cancel(id);
    s.run_until_idle();
    for (RequestId answer = id; answer < id + 3; ++answer) {
        REQUIRE(s.reason(answer) == FinishReason::cancelled);
        REQUIRE(s.heard[answer].tokens.empty());
    }
    REQUIRE(leased(s) == 0);
    const RequestId next = s.submit(endless_beams(prompt_of(20), 4, 10));
    s.run_until_idle();
    check_answer(s, next);
}

TEST_CASE("more beams than slots or pages are refused with both numbers",
          "[actors][scheduler][beams]") {
    SchedulerScript s({.slots_max = 4, .pages_total = 6});
    const RequestId slots = s.submit(beams(prompt_of(10), 5, 10, 2));
    const RequestId pages = s.submit(beams(prompt_of(60), 4, 10));
    s.run_until_idle();
    for (const RequestId id : {slots, slots + 1, pages}) {
        REQUIRE(s.heard[id].rejected.size() == 1);
        REQUIRE(s.heard[id].rejected[0].reason == Rejected::Reason::too_wide);
    }
    REQUIRE(s.heard[slots].rejected[0].message ==
            "beam_width is 5, but this server runs at most 4 sequences at once");
    REQUIRE(s.heard[pages].rejected[0].message ==
            "beam_width is 4, which with this prompt needs at least 7 pages of memory, but this "
            "server has 6");
}

TEST_CASE("beams that fill all pages end with length and were never interrupted",
          "[actors][scheduler][beams]") {
    SchedulerScript s({.slots_max = 4, .pages_total = 9});
    const RequestId id = s.submit(endless_beams(prompt_of(20), 4, -1));
    s.run_until_idle();
    check_answer(s, id);
    REQUIRE(s.heard[id].tokens.size() == 3 * 16 - 20);  // a page of prompt, and two for each beam
    REQUIRE(s.stats.preemptions_total.get() == 0);
}

TEST_CASE("a beam search waits until all its slots are free, and nobody overtakes it",
          "[actors][scheduler][beams]") {
    SchedulerScript s({.slots_max = 4});
    const RequestId first = s.submit(prompt_of(10), length_of(20));
    const RequestId second = s.submit(prompt_of(10, 1), length_of(40));
    s.turn();
    const RequestId wide = s.submit(endless_beams(prompt_of(10, 2), 3, 10));
    const RequestId behind = s.submit(prompt_of(10, 3), length_of(10));
    s.run_until_ended(wide);
    REQUIRE(s.heard[first].ended());
    REQUIRE_FALSE(s.heard[second].ended());
    REQUIRE_FALSE(s.heard[behind].ended());
    s.run_until_idle();
    check_answer(s, wide);
    REQUIRE(s.heard[behind].tokens == s.expected(behind));
}

TEST_CASE("a beam search that is preempted starts again and answers the same",
          "[actors][scheduler][beams]") {
    SchedulerScript s({.slots_max = 8, .pages_total = 14}, {.pipeline_depth = GENERATE(1u, 2u)});
    const RequestId old = s.submit(prompt_of(20), length_of(150));
    for (int i = 0; i < 40; ++i)
        s.turn();
    const RequestId wide = s.submit(endless_beams(prompt_of(20, 1), 3, 50));
    s.run_until_ended(old);
    REQUIRE(s.stats.preemptions_total.get() > 0);
    REQUIRE_FALSE(s.heard[wide].ended());
    s.run_until_idle();
    check_answer(s, wide);
    REQUIRE(s.heard[old].tokens == s.expected(old));
    REQUIRE(leased(s) == 0);
}

TEST_CASE("a younger request makes room for the forks of a beam search",
          "[actors][scheduler][beams]") {
    SchedulerScript s({.slots_max = 8, .pages_total = 13}, {.pipeline_depth = GENERATE(1u, 2u)});
    const RequestId wide = s.submit(endless_beams(prompt_of(30), 4, 60));
    const RequestId young = s.submit(prompt_of(30, 1), length_of(120));
    s.run_until_ended(wide);
    REQUIRE(s.stats.preemptions_total.get() > 0);
    REQUIRE_FALSE(s.heard[young].ended());
    s.run_until_idle();
    check_answer(s, wide);
    REQUIRE(s.heard[young].tokens == s.expected(young));
}

TEST_CASE("a failed backend and a failed row end a beam search once",
          "[actors][scheduler][beams]") {
    int steps = 0, rows = 0;
    const bool whole = GENERATE(true, false);
    FakeBackendOptions options;
    options.fail_step = [&] { return whole && ++steps == 6; };
    options.fail_row = [&] { return !whole && ++rows == 12; };
    SchedulerScript s(options);
    Submit submit = endless_beams(prompt_of(20), 4, 60);
    submit.answers = 2;
    const RequestId id = s.submit(std::move(submit));
    s.run_until_idle();
    REQUIRE(s.reason(id) == FinishReason::error);
    REQUIRE(s.reason(id + 1) == FinishReason::error);
    REQUIRE(leased(s) == 0);
    const RequestId next = s.submit(endless_beams(prompt_of(20), 4, 10));
    s.run_until_idle();
    check_answer(s, next);
}

TEST_CASE("a deadline and a shutdown end a beam search in its middle",
          "[actors][scheduler][beams]") {
    SchedulerScript s;
    Submit submit = endless_beams(prompt_of(20), 4, 300);
    submit.deadline = s.clock.now() + 50ms;
    const RequestId late = s.submit(std::move(submit));
    s.run_until_idle();
    REQUIRE(s.reason(late) == FinishReason::deadline);
    const RequestId id = s.submit(endless_beams(prompt_of(20), 4, 300));
    s.turn();
    s.turn();
    s.shutdown(20ms);
    s.run_until_idle();
    REQUIRE(s.reason(id) == FinishReason::shutdown);
    REQUIRE(s.output.stopped);
    REQUIRE(leased(s) == 0);
}

TEST_CASE("a stop string cuts an answer of a beam search", "[actors][scheduler][beams]") {
    SchedulerScript s({}, {.tokenizer = &tokenizer});
    Submit submit = endless_beams(prompt_of(20), 3, 30);
    const RequestId plain = s.submit(submit);
    s.run_until_idle();
    std::string text;
    for (const model::TokenId token : s.heard[plain].tokens)
        text += static_cast<char>('a' + token - 1);
    submit.params.stop = {"never", text.substr(9, 4)};
    const RequestId id = s.submit(submit);
    s.run_until_idle();
    check_answer(s, id);
    REQUIRE(s.heard[id].finished[0].cause.stop_string == 1);
    REQUIRE(s.heard[id].tokens.size() == 13);
}

TEST_CASE("no token, or only the prompt, needs no beams", "[actors][scheduler][beams]") {
    SchedulerScript s;
    const RequestId none = s.submit(beams(prompt_of(20), 4, 0, 2));
    Submit warm = beams(prompt_of(20), 4, 10);
    warm.prefill_only = true;
    const RequestId prompt = s.submit(std::move(warm));
    s.run_until_idle();
    REQUIRE(s.reason(none) == FinishReason::length);
    REQUIRE(s.reason(none + 1) == FinishReason::length);
    REQUIRE(s.reason(prompt) == FinishReason::stop);
    REQUIRE(s.backend.tokens_computed() == 20);
}

TEST_CASE("eight answers to one prompt hold and compute its full pages once",
          "[actors][scheduler]") {
    const auto pages_of = [](bool one_principal) {
        SchedulerScript s({.pages_total = 100, .tokens_per_step_max = 256});
        for (std::uint32_t i = 0; i < 8; ++i) {
            Submit submit;
            submit.prompt = prompt_of(100);
            submit.params = length_of(40);
            submit.answer_index = i;
            submit.cache_salt = one_principal ? 1 : i;
            s.submit(std::move(submit));
        }
        for (int turns = 0; turns < 50 && s.stats.requests_running.get() < 8; ++turns)
            s.turn();
        REQUIRE(s.stats.requests_running.get() == 8);
        const std::uint32_t pages = leased(s);
        s.run_until_idle();
        // The last page is computed by each: 4 tokens of it, and 39 of the answer.
        if (one_principal) REQUIRE(s.backend.tokens_computed() == 96 + 8 * (4 + 39));
        return pages;
    };
    REQUIRE(pages_of(false) == 8 * 8);
    REQUIRE(pages_of(true) == 6 + 8 * 2);
}

}  // namespace
}  // namespace troupe::actors
