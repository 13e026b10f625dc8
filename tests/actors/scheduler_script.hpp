// A scripted conversation with the scheduler: a clock that the test holds, the fake backend behind
// the executor's core, and everything a session would have heard. After every step all books are
// checked.
#pragma once

#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/executor.hpp"
#include "actors/scheduler.hpp"
#include "runtime/clock.hpp"
#include "tools/simulation/fake_backend.hpp"

namespace troupe::actors {

using Tokens = std::vector<model::TokenId>;
using simulation::FakeBackend;
using simulation::FakeBackendOptions;
using simulation::kEndToken;
using namespace std::chrono_literals;

// What one session has heard about its request.
struct Heard {
    Tokens tokens;
    std::vector<float> prompt_scores;
    std::vector<std::uint32_t> positions;
    std::vector<PromptProgress> progress;
    std::vector<Finished> finished;
    std::vector<Rejected> rejected;

    [[nodiscard]] bool ended() const { return !finished.empty() || !rejected.empty(); }
};

// `length` tokens that no other `story` begins with; never the end token.
inline Tokens prompt_of(std::size_t length, int story = 0) {
    Tokens tokens(length);
    for (std::size_t i = 0; i < length; ++i) {
        tokens[i] = static_cast<model::TokenId>(1 + (i * 7 + static_cast<std::size_t>(story)) % 26);
    }
    return tokens;
}

// Exactly so many tokens.
inline model::DecodingParams length_of(std::int32_t max_tokens) {
    model::DecodingParams params;
    params.max_tokens = max_tokens;
    params.ignore_eos = true;
    return params;
}

inline model::DecodingParams seeded(std::uint64_t seed) {
    model::DecodingParams params;
    params.seed = seed;
    return params;
}

class SchedulerScript {
 public:
    explicit SchedulerScript(FakeBackendOptions options = {}, SchedulerSettings wanted = {})
        : backend(std::move(options)), stats(backend.info().slots_max), executor(backend) {
        wanted.describe(backend.info());
        wanted.end_tokens = {kEndToken};
        sequence_tokens_max = wanted.sequence_tokens_max();
        scheduler.emplace(std::move(wanted), stats);
    }

    RequestId submit(Tokens prompt, model::DecodingParams params = {}, Principal principal = {}) {
        Submit s;
        s.prompt = std::move(prompt);
        s.params = std::move(params);
        s.principal = principal;
        return submit(std::move(s));
    }
    RequestId submit(Submit s) {
        const RequestId id = next_id_;
        next_id_ += s.answers;
        s.request = id;
        s.reply_to = {0, id + 1000};
        s.stop = runtime::StopFlag::make();
        flags_[id] = s.stop;
        for (std::uint32_t answer = 0; answer < s.answers; ++answer)
            asked[id + answer] = s;
        messages_.push_back(std::move(s));
        return id;
    }
    void cancel(RequestId id) {
        if (flags_.contains(id)) flags_[id]->request(runtime::StopReason::cancelled);
        messages_.push_back(Cancel{id});
    }
    void shutdown(runtime::Duration patience) {
        messages_.push_back(SchedulerShutdown{clock.now() + patience});
    }

    // The scheduler takes what is waiting for it; a plan that it makes is submitted.
    void step() {
        scheduler->step(clock.now(), messages_, output);
        messages_.clear();
        if (output.run) {
            plans.push_back(*output.run->plan);
            if (auto failure = executor.submit(std::move(*output.run)))
                messages_.push_back(*failure);
        }
        output.run.reset();
        listen();
        REQUIRE(scheduler->check_integrity() == "");
        REQUIRE(backend.breach() == "");
    }
    // The oldest submitted step ends; time moves by what it cost.
    void compute() {
        SchedulerMessage message = executor.wait();
        if (const auto* done = std::get_if<StepDone>(&message)) {
            clock.advance_by(runtime::Duration(done->result->compute_ns));
        }
        messages_.push_back(std::move(message));
    }
    // One turn: a step of the scheduler, then one of the model.
    void turn() {
        step();
        if (executor.outstanding() > 0) compute();
    }
    void run_until_idle() {
        for (int turns = 0; turns < 20'000; ++turns) {
            turn();
            if (messages_.empty() && executor.outstanding() == 0 && scheduler->live_count() == 0) {
                step();  // the last leases go back
                return;
            }
        }
        FAIL("the scheduler does not come to rest");
    }
    void run_until_ended(RequestId id) {
        for (int turns = 0; turns < 20'000 && !heard[id].ended(); ++turns)
            turn();
        REQUIRE(heard[id].ended());
    }

    // What an undisturbed model answers to the request, its end token left out.
    [[nodiscard]] Tokens expected(RequestId id) const {
        const Submit& s = asked.at(id);
        const std::size_t room = sequence_tokens_max - s.prompt.size();
        const std::size_t count =
            s.params.max_tokens < 0 ? room : std::min<std::size_t>(room, s.params.max_tokens);
        Tokens answer = FakeBackend::oracle(s.prompt, s.params, s.answer_index, count,
                                            backend.info().vocabulary_size, backend.info().window);
        if (!answer.empty() && answer.back() == kEndToken) answer.pop_back();
        return answer;
    }
    [[nodiscard]] FinishReason reason(RequestId id) {
        REQUIRE(heard[id].finished.size() == 1);
        REQUIRE(heard[id].rejected.empty());
        return heard[id].finished[0].reason;
    }

    runtime::VirtualClock clock;
    FakeBackend backend;
    EngineStats stats;
    Executor executor;
    std::optional<Scheduler> scheduler;
    std::size_t sequence_tokens_max = 0;
    SchedulerOutput output;
    std::vector<model::StepPlan> plans;  // all that were sent
    std::map<RequestId, Submit> asked;
    std::map<RequestId, Heard> heard;

 private:
    void listen() {
        for (const Delivery& d : scheduler->outbox().deliveries()) {
            for (const SessionEvent& event : d.events) {
                std::visit([&](const auto& e) { hear(d, e); }, event);
            }
        }
    }
    Heard& of(RequestId id, SessionId session) {
        REQUIRE(session == asked.at(id).reply_to.session);
        REQUIRE_FALSE(heard[id].ended());  // nothing comes after the terminal event
        return heard[id];
    }
    void hear(const Delivery&, const Queued& e) {
        of(e.request, e.session).positions.push_back(e.position);
    }
    void hear(const Delivery&, const PromptProgress& e) {
        of(e.request, e.session).progress.push_back(e);
    }
    void hear(const Delivery& d, const TokenRun& e) {
        Heard& h = of(e.request, e.session);
        REQUIRE(e.first_index == h.tokens.size());
        for (std::uint32_t i = 0; i < e.count; ++i)
            h.tokens.push_back(d.tokens[e.begin + i].id);
    }
    void hear(const Delivery& d, const PromptScores& e) {
        Heard& h = of(e.request, e.session);
        REQUIRE(e.first_index == h.prompt_scores.size() + 1);
        for (std::uint32_t i = 0; i < e.count; ++i) {
            const model::SampledToken& scored = d.tokens[e.begin + i];
            REQUIRE(scored.id == asked.at(e.request).prompt.at(e.first_index + i));
            h.prompt_scores.push_back(scored.logprob);
        }
    }
    void hear(const Delivery&, const Finished& e) {
        of(e.request, e.session).finished.push_back(e);
    }
    void hear(const Delivery&, const Rejected& e) {
        of(e.request, e.session).rejected.push_back(e);
    }

    RequestId next_id_ = 1;
    std::vector<SchedulerMessage> messages_;
    std::map<RequestId, runtime::SharedStopFlag> flags_;
};

}  // namespace troupe::actors
