// FakeBackend: a model without arithmetic whose answers can be foretold. Every position of a page
// holds a digest of its token and of all tokens before it, as read through the slot's page table; a
// draw is a function of all digests that attention would see, of the seed and of the position. So
// any mix-up of pages, slots, positions or histories changes an answer. It also watches the rules
// of the contract that answers cannot show. A request with a top_k of p gets a text that repeats
// itself every p tokens, for drafts to guess: with temperature 0 always, else but for some slips.
// For the simulator and tests; runs on the executor lane.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/backend.hpp"
#include "model/step.hpp"

namespace troupe::simulation {

// The one token that ends an answer.
inline constexpr model::TokenId kEndToken = 0;
struct FakeBackendOptions {
    std::int32_t vocabulary_size = 27;
    std::uint32_t context_length = 512;
    std::uint32_t slots_max = 8;
    std::uint32_t pages_total = 64;
    std::uint32_t tokens_per_step_max = 128;
    model::AttentionWindow window{};  // of at least two tokens, if any

    // What a step costs.
    std::int64_t step_ns = 1'000'000;
    std::int64_t row_ns = 100'000;
    std::int64_t prompt_token_ns = 200'000;

    // Called in wait(): takes the step's time, for a simulated lane.
    std::function<void(std::int64_t compute_ns)> spend{};
    // Asked in wait(): should this step throw BackendError?
    std::function<bool()> fail_step{};
    // Asked for each row: are its scores not finite?
    std::function<bool()> fail_row{};
    // Asked for each draw: should another token come out, as from another model?
    std::function<bool()> disagree{};
};

class FakeBackend final : public model::Backend {
 public:
    explicit FakeBackend(FakeBackendOptions options);

    [[nodiscard]] const model::BackendInfo& info() const override { return info_; }
    void submit(const model::StepPlan& plan) override;
    void wait(model::StepResult& result) override;
    void reset() override;

    // The first breach of the contract in words, or empty.
    [[nodiscard]] const std::string& breach() const { return breach_; }
    [[nodiscard]] std::uint64_t tokens_computed() const { return tokens_computed_; }

    // What this model answers to `prompt`, undisturbed: `count` draws, the last of them an end
    // token if one comes before. Computed without pages, slots or steps.
    [[nodiscard]] static std::vector<model::TokenId> oracle(std::span<const model::TokenId> prompt,
                                                            const model::DecodingParams& params,
                                                            std::uint32_t answer_index,
                                                            std::size_t count,
                                                            std::int32_t vocabulary_size,
                                                            model::AttentionWindow window = {});

    // The likeliest tokens after `tokens`, as a row with `top_logprobs` gives them: those that a
    // beam search sees. No real distribution, but a function of all that went before.
    [[nodiscard]] static std::vector<model::TokenLogprob> oracle_row(
        std::span<const model::TokenId> tokens, std::size_t count, std::int32_t vocabulary_size,
        model::AttentionWindow window = {});

    // The log-probability of each of `tokens` but the first after those before it.
    [[nodiscard]] static std::vector<float> oracle_scores(std::span<const model::TokenId> tokens,
                                                          model::AttentionWindow window = {});

 private:
    struct Slot {
        bool open = false;
        bool failed = false;
        model::DecodingParams params;
        std::uint32_t answer_index = 0;
        std::uint32_t prompt_length = 0;
        std::uint32_t known = 0;          // tokens that it was opened with, cached ones included
        std::uint64_t history = 0;        // a digest of them, for its penalties
        std::vector<model::TokenId> fed;  // the tokens behind them, as far as they are written
        model::TokenId drawn = model::kDrawnToken;
        std::uint64_t drawn_in_step = 0;
        std::vector<model::PageId> pages;
    };
    using Page = std::array<std::uint64_t, model::kPageTokens>;

    void compute(const model::StepPlan& plan, model::StepResult& result);
    void open_and_grant(const model::StepPlan& plan);
    void trim(const model::PageTrim& trim);
    void run_sequence(const model::StepPlan& plan, const model::SequenceStep& step,
                      model::StepResult& result);
    void write(Slot& slot, std::uint32_t position, model::TokenId token);
    [[nodiscard]] std::uint64_t digest(const Slot& slot, std::uint32_t position);
    [[nodiscard]] std::uint64_t seen_at(const Slot& slot, std::uint32_t position);
    [[nodiscard]] model::SampledToken draw(const Slot& slot, std::uint32_t position,
                                           std::vector<model::TokenLogprob>& top);
    void expect(bool rule, const char* what);

    FakeBackendOptions options_;
    model::BackendInfo info_;
    std::vector<Slot> slots_;
    std::vector<Page> pages_;
    std::vector<std::uint32_t> page_slots_;  // open slots whose table holds the page
    std::deque<const model::StepPlan*> outstanding_;
    std::uint64_t tokens_computed_ = 0;
    std::string breach_;
};

}  // namespace troupe::simulation
