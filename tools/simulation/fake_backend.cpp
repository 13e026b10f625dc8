#include "tools/simulation/fake_backend.hpp"

#include <algorithm>
#include <utility>

#include "runtime/base/random.hpp"

namespace troupe::simulation {
namespace {

using model::kPageTokens;
using model::TokenId;

std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
    return mix_bits(a * 0x9e3779b97f4a7c15u + b + 1);
}

// The first position of the window of a query at `position`, sinks left out.
std::uint32_t window_begin(const model::AttentionWindow& window, std::uint32_t position) {
    if (!window.bounded() || position < window.tokens) return std::min(window.sinks, position + 1);
    return std::max(position + 1 - window.tokens, window.sinks);
}

std::uint64_t after(std::uint64_t digest_before, TokenId token) {
    return mixed(digest_before, static_cast<std::uint64_t>(token));
}

struct DrawInput {
    std::uint64_t seen = 0;     // the sum of all digests up to the position
    std::uint64_t history = 0;  // 0 where nothing is penalised
    std::uint32_t answer_index = 0;
    std::uint32_t answer_count = 0;
    std::uint32_t position = 0;
};

constexpr std::uint64_t kSlips = 8;  // one draw of so many

TokenId drawn_token(const DrawInput& in, const model::DecodingParams& params,
                    std::int32_t vocabulary_size) {
    std::uint64_t value = mixed(in.seen, in.history);
    value = mixed(mixed(value, params.seed), in.answer_index);
    value = mixed(value, in.position);
    if (params.top_k > 0 && (params.greedy() || value % kSlips != 0)) {
        const std::uint32_t place = in.position % static_cast<std::uint32_t>(params.top_k);
        const auto letters = static_cast<std::uint64_t>(vocabulary_size - 1);
        return 1 + static_cast<TokenId>(mixed(params.seed, place) % letters);
    }
    const auto id = static_cast<TokenId>(value % static_cast<std::uint64_t>(vocabulary_size));
    const bool masked = params.ignore_eos || static_cast<std::int64_t>(in.answer_count) <
                                                 static_cast<std::int64_t>(params.min_tokens);
    return id == kEndToken && masked ? id + 1 : id;
}

// Few values, so that equal ones are met; an end is about as likely as anything.
float logprob_of(std::uint64_t seen, std::uint32_t position, TokenId id) {
    const std::uint64_t value = mixed(mixed(seen, position), static_cast<std::uint64_t>(id));
    return -0.25F * static_cast<float>(1 + value % 32);
}

// The sum of the digests of `tokens` that a query at the last of them sees.
std::uint64_t seen_after(std::span<const TokenId> tokens, const model::AttentionWindow& window) {
    const auto last = static_cast<std::uint32_t>(tokens.size()) - 1;
    const std::uint32_t begin = window_begin(window, last);
    std::uint64_t digest = 0, seen = 0;
    for (std::uint32_t i = 0; i <= last; ++i) {
        digest = after(digest, tokens[i]);
        if (i < window.sinks || i >= begin) seen += digest;
    }
    return seen;
}

// The best tokens of a row, by falling log-probability, then rising id.
std::vector<model::TokenLogprob> best_tokens(std::uint64_t seen, std::uint32_t position,
                                             std::size_t count, std::int32_t vocabulary_size) {
    std::vector<model::TokenLogprob> row;
    for (TokenId id = 0; id < vocabulary_size; ++id) {
        row.push_back({id, logprob_of(seen, position, id)});
    }
    std::ranges::stable_sort(row, std::ranges::greater{}, &model::TokenLogprob::logprob);
    row.resize(std::min(row.size(), count));
    return row;
}

}  // namespace

FakeBackend::FakeBackend(FakeBackendOptions options)
    : options_(std::move(options)),
      slots_(options_.slots_max),
      pages_(options_.pages_total),
      page_slots_(options_.pages_total, 0) {
    info_.kind = "fake";
    info_.vocabulary_size = options_.vocabulary_size;
    info_.context_length = options_.context_length;
    info_.slots_max = options_.slots_max;
    info_.pages_total = options_.pages_total;
    info_.tokens_per_step_max = options_.tokens_per_step_max;
    info_.window = options_.window;
}

void FakeBackend::submit(const model::StepPlan& plan) {
    outstanding_.push_back(&plan);
    expect(outstanding_.size() <= 2, "more than two steps are outstanding");
}

void FakeBackend::wait(model::StepResult& result) {
    const model::StepPlan& plan = *outstanding_.front();
    outstanding_.pop_front();
    std::uint32_t rows = 0;
    for (const auto& s : plan.sequences)
        rows += s.token_count == std::max(s.sample_count, 1u) ? s.token_count : 0;
    result.clear();
    result.compute_ns =
        options_.step_ns + rows * options_.row_ns +
        (static_cast<std::int64_t>(plan.tokens.size()) - rows) * options_.prompt_token_ns;
    result.sample_ns = rows * options_.row_ns / 4;
    if (options_.spend) options_.spend(result.compute_ns);
    if (options_.fail_step && options_.fail_step()) {
        throw model::BackendError("the fake device was lost");
    }
    compute(plan, result);
}

void FakeBackend::reset() {
    slots_.assign(slots_.size(), Slot{});
    page_slots_.assign(page_slots_.size(), 0);
    outstanding_.clear();
}

void FakeBackend::compute(const model::StepPlan& plan, model::StepResult& result) {
    open_and_grant(plan);
    expect(plan.tokens.size() <= options_.tokens_per_step_max, "a step has too many tokens");
    std::vector<bool> named(slots_.size(), false);
    for (const model::SequenceStep& step : plan.sequences) {
        expect(!named.at(step.slot), "a slot is named twice in a step");
        named.at(step.slot) = true;
        run_sequence(plan, step, result);
    }
}

void FakeBackend::trim(const model::PageTrim& trim) {
    Slot& slot = slots_.at(trim.slot);
    expect(slot.open && trim.end <= slot.pages.size(), "pages are trimmed that a slot never had");
    for (std::uint32_t i = trim.begin; i < trim.end; ++i)
        --page_slots_.at(std::exchange(slot.pages.at(i), model::kNoPage));
}

void FakeBackend::open_and_grant(const model::StepPlan& plan) {
    for (const model::PageTrim& trimmed : plan.trims)
        trim(trimmed);
    for (const model::SlotId id : plan.closes) {
        expect(slots_.at(id).open, "a closed slot is closed");
        for (const model::PageId page : slots_.at(id).pages) {
            if (page != model::kNoPage) --page_slots_.at(page);
        }
        slots_.at(id) = Slot{};
    }
    for (const model::SlotOpen& open : plan.opens) {
        Slot& slot = slots_.at(open.slot);
        expect(!slot.open, "an open slot is opened");
        slot.open = true;
        slot.params = open.params;
        slot.answer_index = open.answer_index;
        slot.prompt_length = open.prompt_length;
        slot.known = open.prompt_length + open.answer_count;
        for (const TokenId token : open.history)
            slot.history += after(1, token);
        const bool complete = open.history.size() == slot.known;
        expect(complete || !open.params.penalised(), "a history is not prompt and answer");
    }
    for (const model::PageGrant& grant : plan.grants) {
        expect(slots_.at(grant.slot).open, "a closed slot is granted a page");
        slots_.at(grant.slot).pages.push_back(grant.page);
        if (grant.page != model::kNoPage) ++page_slots_.at(grant.page);
    }
    for (const model::PageCopy& copy : plan.copies) {
        std::copy_n(pages_.at(copy.from).begin(), copy.tokens, pages_.at(copy.to).begin());
    }
}

void FakeBackend::run_sequence(const model::StepPlan& plan, const model::SequenceStep& step,
                               model::StepResult& result) {
    Slot& slot = slots_.at(step.slot);
    expect(slot.open, "a closed slot runs");
    model::SequenceResult& row = result.sequences.emplace_back();
    row.slot = step.slot;
    row.sampled_begin = static_cast<std::uint32_t>(result.sampled.size());
    row.scored_begin = static_cast<std::uint32_t>(result.scored.size());
    expect(step.target_count + step.sample_count <= step.token_count, "a row draws and is scored");
    // A step that was sent before its failure was known may still ask for what it drew.
    slot.failed = slot.failed || (options_.fail_row && options_.fail_row());
    row.failed = slot.failed;
    for (std::uint32_t i = 0; i < step.token_count; ++i) {
        TokenId token = plan.tokens.at(step.token_begin + i);
        if (token == model::kDrawnToken) {
            expect(slot.failed || (slot.drawn >= 0 && slot.drawn_in_step + 1 == plan.step),
                   "a drawn token is asked for that the step before did not draw");
            token = std::max(slot.drawn, 0);
        }
        const std::uint32_t position = step.position + i;
        write(slot, position, token);
        ++tokens_computed_;
        if (position >= slot.known) {
            expect(position - slot.known <= slot.fed.size(), "a token of the answer is left out");
            slot.fed.resize(position - slot.known);  // what is behind was a draft that was wrong
            slot.fed.push_back(token);
        }
        if (i < step.target_count && !row.failed) {
            const TokenId target = plan.targets.at(step.target_begin + i);
            result.scored.push_back(
                {.id = target, .logprob = logprob_of(seen_at(slot, position), position, target)});
            ++row.scored_count;
        }
        if (i + step.sample_count < step.token_count || row.failed) continue;
        result.sampled.push_back(draw(slot, position, result.top));
        slot.drawn = result.sampled.back().id;
        slot.drawn_in_step = plan.step;
        ++row.sampled_count;
    }
}

void FakeBackend::write(Slot& slot, std::uint32_t position, TokenId token) {
    if (position / kPageTokens >= slot.pages.size() || position >= options_.context_length) {
        expect(false, "a position lies outside its slot's pages");
        return;
    }
    const model::PageId page = slot.pages[position / kPageTokens];
    if (page == model::kNoPage) {
        expect(false, "a page is written that was given back");
        return;
    }
    expect(page_slots_.at(page) == 1, "a page is written that another slot reads");
    const std::uint64_t before = position == 0 ? 0 : digest(slot, position - 1);
    pages_.at(page)[position % kPageTokens] = after(before, token);
}

std::uint64_t FakeBackend::digest(const Slot& slot, std::uint32_t position) {
    const model::PageId page = slot.pages.at(position / kPageTokens);
    if (page == model::kNoPage) {
        expect(false, "a page is read that was given back");
        return 0;
    }
    return pages_.at(page)[position % kPageTokens];
}

// The sum of all digests that a query at `position` sees.
std::uint64_t FakeBackend::seen_at(const Slot& slot, std::uint32_t position) {
    std::uint64_t seen = 0;
    const std::uint32_t begin = window_begin(options_.window, position);
    for (std::uint32_t i = 0; i <= position; ++i) {
        if (i < options_.window.sinks || i >= begin) seen += digest(slot, i);
    }
    return seen;
}

model::SampledToken FakeBackend::draw(const Slot& slot, std::uint32_t position,
                                      std::vector<model::TokenLogprob>& top) {
    if (position / kPageTokens >= slot.pages.size()) return {.id = kEndToken};
    DrawInput in{.history = slot.history,
                 .answer_index = slot.answer_index,
                 .answer_count = position + 1 - slot.prompt_length,
                 .position = position};
    in.seen = seen_at(slot, position);
    if (slot.params.penalised()) {
        for (const TokenId token : slot.fed)
            in.history += after(1, token);
    }
    const TokenId token = drawn_token(in, slot.params, options_.vocabulary_size);
    const auto best =
        best_tokens(in.seen, position, static_cast<std::size_t>(slot.params.top_logprobs),
                    options_.vocabulary_size);
    const auto top_begin = static_cast<std::uint32_t>(top.size());
    top.insert(top.end(), best.begin(), best.end());
    const bool other = options_.disagree && options_.disagree();
    return {.id = other ? 1 + token % (options_.vocabulary_size - 1) : token,
            .top_begin = top_begin,
            .top_count = static_cast<std::uint32_t>(best.size())};
}

void FakeBackend::expect(bool rule, const char* what) {
    if (!rule && breach_.empty()) breach_ = what;
}

std::vector<TokenId> FakeBackend::oracle(std::span<const TokenId> prompt,
                                         const model::DecodingParams& params,
                                         std::uint32_t answer_index, std::size_t count,
                                         std::int32_t vocabulary_size,
                                         model::AttentionWindow window) {
    std::vector<std::uint64_t> digests;
    DrawInput in{.answer_index = answer_index};
    const auto read = [&](TokenId token) {
        digests.push_back(after(digests.empty() ? 0 : digests.back(), token));
        in.seen += digests.back();
        const auto position = static_cast<std::uint32_t>(digests.size() - 1);
        const bool leaves = window.bounded() && position >= window.tokens + window.sinks;
        if (leaves) in.seen -= digests[position - window.tokens];
        if (params.penalised()) in.history += after(1, token);
    };
    for (const TokenId token : prompt)
        read(token);
    std::vector<TokenId> answer;
    while (answer.size() < count) {
        in.position = static_cast<std::uint32_t>(prompt.size() + answer.size()) - 1;
        in.answer_count = static_cast<std::uint32_t>(answer.size());
        answer.push_back(drawn_token(in, params, vocabulary_size));
        if (answer.back() == kEndToken) break;
        read(answer.back());
    }
    return answer;
}

std::vector<model::TokenLogprob> FakeBackend::oracle_row(std::span<const TokenId> tokens,
                                                         std::size_t count,
                                                         std::int32_t vocabulary_size,
                                                         model::AttentionWindow window) {
    return best_tokens(seen_after(tokens, window), static_cast<std::uint32_t>(tokens.size()) - 1,
                       count, vocabulary_size);
}

std::vector<float> FakeBackend::oracle_scores(std::span<const TokenId> tokens,
                                              model::AttentionWindow window) {
    std::vector<float> scores;
    for (std::uint32_t i = 1; i < tokens.size(); ++i)
        scores.push_back(logprob_of(seen_after(tokens.first(i), window), i - 1, tokens[i]));
    return scores;
}

}  // namespace troupe::simulation
