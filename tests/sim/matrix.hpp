// Same request, same answer: the real scheduler over a real backend and a tiny real model, stepped
// on one thread. Whatever else goes on, a request's tokens and their log-probabilities are, bit for
// bit, those that it gets alone. For the backends' own tests, which say how one is made.
#pragma once

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/executor.hpp"
#include "actors/scheduler.hpp"
#include "model/drafting_backend.hpp"
#include "runtime/clock.hpp"

namespace troupe::test {

struct Answer {
    std::vector<model::TokenId> tokens;
    std::vector<std::uint32_t> logprob_bits;
    bool ended = false;
    friend bool operator==(const Answer&, const Answer&) = default;
};

// What disturbs the request that is looked at.
struct Circumstances {
    bool hit = false;         // its prefix is cached
    bool chunked = false;     // its prompt is cut into slices of a few tokens
    bool preempted = false;   // too few pages for all: somebody is preempted, again and again
    bool neighbours = false;  // others run in every step
    bool siblings = false;    // it is one of n = 3
    bool drafted = false;     // prompt lookup guesses, and the model drafts for itself

    [[nodiscard]] std::string describe() const {
        std::string text;
        for (const auto& [on, name] : {std::pair{hit, " hit"},
                                       {chunked, " chunked"},
                                       {preempted, " preempted"},
                                       {neighbours, " neighbours"},
                                       {siblings, " siblings"},
                                       {drafted, " drafted"}}) {
            if (on) text += name;
        }
        return text.empty() ? "alone" : text;
    }
};

// A backend for the circumstances: with `chunked` its steps are short. `pages`: so many, and rows
// of a step for a slot more, as a model needs that drafts for another; 0: for the model itself.
using MakeBackend =
    std::function<std::unique_ptr<model::Backend>(const Circumstances& c, std::uint32_t pages)>;

inline constexpr std::uint32_t kMatrixPromptTokens = 70;
inline constexpr std::uint32_t kMatrixStepTokens = 256;
inline constexpr std::uint32_t kMatrixStepTokensChunked = 13;

// Tokens that are text, by a plain linear congruence; stories differ from the first token on.
inline std::vector<model::TokenId> prompt_of(std::uint32_t length, std::uint32_t story) {
    std::vector<model::TokenId> tokens{1};
    std::uint32_t state = story * 2654435761U + 12345U;
    while (tokens.size() < length) {
        state = state * 1664525U + 1013904223U;
        tokens.push_back(static_cast<model::TokenId>(259 + (state >> 16U) % 200));
    }
    return tokens;
}

inline model::DecodingParams greedy_answer(std::int32_t tokens) {
    model::DecodingParams params;
    params.temperature = 0;
    params.max_tokens = tokens;
    params.ignore_eos = true;
    params.logprobs = true;
    return params;
}

inline model::DecodingParams sampled_answer(std::int32_t tokens) {
    model::DecodingParams params = greedy_answer(tokens);
    params.temperature = 0.9;
    params.top_k = 40;
    params.top_p = 0.95;
    params.repetition_penalty = 1.1;
    params.frequency_penalty = 0.2;
    params.presence_penalty = 0.1;
    params.seed = 7;
    return params;
}

// Steps the scheduler and the executor's core by turns, on one thread.
class MatrixEngine {
 public:
    MatrixEngine(const MakeBackend& make_backend, const Circumstances& c,
                 std::int32_t answer_tokens)
        : pages_for_some_(static_cast<std::uint32_t>(answer_tokens) * 9 / 20),
          backend_(make_for(make_backend, c)),
          drafted_(c.drafted),
          stats_(backend_->info().slots_max),
          executor_(*backend_),
          scheduler_(settings(c), stats_) {}

    actors::RequestId submit(std::vector<model::TokenId> prompt, model::DecodingParams params,
                             std::uint32_t answer_index = 0) {
        actors::Submit s;
        s.request = next_id_++;
        s.prompt = std::move(prompt);
        s.params = std::move(params);
        s.answer_index = answer_index;
        s.stop = runtime::StopFlag::make();
        messages_.push_back(std::move(s));
        return next_id_ - 1;
    }

    void run() {
        for (int turns = 0; turns < 20'000; ++turns) {
            scheduler_.step(clock_.now(), messages_, output_);
            messages_.clear();
            listen();
            REQUIRE(scheduler_.check_integrity() == "");
            if (output_.run) REQUIRE_FALSE(executor_.submit(std::move(*output_.run)).has_value());
            output_.run.reset();
            if (executor_.outstanding() > 0) {
                messages_.push_back(executor_.wait());
                // What costs nothing is worth a draft in every step.
                if (drafted_) std::get<actors::StepDone>(messages_.back()).result->compute_ns = 0;
            } else if (scheduler_.live_count() == 0) {
                return;
            }
            clock_.advance_to(clock_.now() + std::chrono::milliseconds(1));
        }
        FAIL("the scheduler does not come to rest");
    }

    [[nodiscard]] const Answer& answer(actors::RequestId id) {
        REQUIRE(answers_[id].ended);
        return answers_[id];
    }
    [[nodiscard]] const model::AttentionWindow& window() const { return backend_->info().window; }
    [[nodiscard]] std::uint64_t preemptions() const { return stats_.preemptions_total.get(); }
    [[nodiscard]] std::uint64_t hit_tokens() const { return stats_.prefix_hit_tokens_total.get(); }
    [[nodiscard]] std::uint64_t accepted_tokens() const {
        return stats_.accepted_tokens_total.get();
    }

 private:
    static std::unique_ptr<model::Backend> make_for(const MakeBackend& make_backend,
                                                    const Circumstances& c) {
        auto target = make_backend(c, 0);
        if (!c.drafted) return target;
        const std::uint32_t pages = target->info().pages_total;
        return std::make_unique<model::DraftingBackend>(std::move(target), make_backend(c, pages));
    }
    actors::SchedulerSettings settings(const Circumstances& c) const {
        actors::SchedulerSettings settings;
        settings.describe(backend_->info());
        settings.end_tokens = {2};
        settings.speculation.lookup = c.drafted;
        if (c.preempted) settings.pages_total = settings.window.bounded() ? 11 : pages_for_some_;
        return settings;
    }

    void listen() {
        for (const actors::Delivery& d : scheduler_.outbox().deliveries()) {
            for (const actors::SessionEvent& event : d.events) {
                if (const auto* run = std::get_if<actors::TokenRun>(&event)) {
                    for (std::uint32_t i = 0; i < run->count; ++i) {
                        const model::SampledToken& token = d.tokens[run->begin + i];
                        answers_[run->request].tokens.push_back(token.id);
                        answers_[run->request].logprob_bits.push_back(
                            std::bit_cast<std::uint32_t>(token.logprob));
                    }
                } else if (const auto* finished = std::get_if<actors::Finished>(&event)) {
                    CHECK(finished->reason == actors::FinishReason::length);
                    answers_[finished->request].ended = true;
                } else {
                    REQUIRE_FALSE(std::holds_alternative<actors::Rejected>(event));
                }
            }
        }
    }

    const std::uint32_t pages_for_some_;  // so few that answers in growth meet their end
    runtime::VirtualClock clock_;
    std::unique_ptr<model::Backend> backend_;
    const bool drafted_;
    actors::EngineStats stats_;
    actors::Executor executor_;
    actors::Scheduler scheduler_;
    actors::SchedulerOutput output_;
    std::vector<actors::SchedulerMessage> messages_;
    std::map<actors::RequestId, Answer> answers_;
    actors::RequestId next_id_ = 1;
};

// The answers of the three siblings; without siblings the first alone. `params`: of the request;
// the neighbours' answers are as long.
inline std::vector<Answer> answers_under(const MakeBackend& make_backend, const Circumstances& c,
                                         const model::DecodingParams& params,
                                         std::uint32_t first = 0) {
    const std::int32_t length = params.max_tokens;
    MatrixEngine engine(make_backend, c, length);
    const auto prompt = prompt_of(kMatrixPromptTokens, 0);
    if (c.hit) {
        engine.submit(prompt, greedy_answer(length));
        engine.run();
    }
    std::vector<actors::RequestId> looked_at;
    const auto submit_neighbour = [&](std::uint32_t story) {
        model::DecodingParams other =
            story % 2 == 0 ? sampled_answer(length) : greedy_answer(length);
        other.seed = story;
        engine.submit(prompt_of(20 + 11 * story, story), std::move(other));
    };
    if (c.neighbours || c.preempted) submit_neighbour(1);
    for (std::uint32_t i = 0; i < (c.siblings ? 3U : 1U); ++i)
        looked_at.push_back(engine.submit(prompt, params, first + i));
    if (c.neighbours || c.preempted) {
        for (std::uint32_t story = 2; story < 6; ++story)
            submit_neighbour(story);
    }
    engine.run();
    // Behind a window as much goes back as comes: nobody has to go.
    if (c.preempted && !engine.window().bounded()) CHECK(engine.preemptions() > 0);
    CHECK((engine.accepted_tokens() > 0) == c.drafted);
    if (c.hit) CHECK(engine.hit_tokens() >= kMatrixPromptTokens / 16 * 16);
    std::vector<Answer> answers;
    for (const actors::RequestId id : looked_at)
        answers.push_back(engine.answer(id));
    return answers;
}

// The first three siblings, each alone.
inline std::vector<Answer> answers_alone(const MakeBackend& make_backend,
                                         const model::DecodingParams& params) {
    std::vector<Answer> alone;
    for (std::uint32_t i = 0; i < 3; ++i)
        alone.push_back(answers_under(make_backend, {}, params, i).front());
    REQUIRE(alone[0].tokens.size() == static_cast<std::size_t>(params.max_tokens));
    CHECK((alone[0] == alone[1]) == (params.temperature == 0));
    return alone;
}

// Each bit of `mask` is one of the circumstances.
inline void check_circumstances(const MakeBackend& make_backend,
                                const model::DecodingParams& params,
                                const std::vector<Answer>& alone, unsigned mask) {
    const Circumstances c{.hit = (mask & 1U) != 0,
                          .chunked = (mask & 2U) != 0,
                          .preempted = (mask & 4U) != 0,
                          .neighbours = (mask & 8U) != 0,
                          .siblings = (mask & 16U) != 0,
                          .drafted = (mask & 32U) != 0};
    INFO(c.describe());
    const std::vector<Answer> answers = answers_under(make_backend, c, params);
    for (std::size_t i = 0; i < answers.size(); ++i)
        CHECK(answers[i] == alone[i]);
}

}  // namespace troupe::test
