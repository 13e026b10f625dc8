// Drives a Backend step by step for tests: gives out slots and pages, keeps positions, and builds
// the plan of the next step one sequence at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "model/backend.hpp"

namespace troupe::test {

using Tokens = std::vector<model::TokenId>;

inline model::DecodingParams greedy_params() {
    model::DecodingParams params;
    params.temperature = 0;
    return params;
}

class EngineDriver {
 public:
    explicit EngineDriver(model::Backend& backend) : backend_(backend) {
        free_pages_.resize(backend.info().pages_total);
        std::iota(free_pages_.rbegin(), free_pages_.rend(), model::PageId{0});
    }

    void shuffle_pages(std::uint32_t seed) {
        std::shuffle(free_pages_.begin(), free_pages_.end(), std::mt19937(seed));
    }

    // Opens a slot. Where the parameters look back they need the prompt, or, for a sequence that
    // resumes, prompt and answer so far.
    void open(model::SlotId slot, model::DecodingParams params = greedy_params(),
              const Tokens& prompt = {}, std::uint32_t answer_count = 0,
              const Tokens& history = {}) {
        if (slots_.size() <= slot) slots_.resize(slot + 1);
        slots_[slot] = {};
        model::SlotOpen& open = plan_.opens.emplace_back();
        open.slot = slot;
        open.params = std::move(params);
        open.prompt_length = static_cast<std::uint32_t>(prompt.size());
        open.answer_count = answer_count;
        open.history = history.empty() ? prompt : history;
    }

    void close(model::SlotId slot) {
        plan_.closes.push_back(slot);
        for (const model::PageId page : slots_[slot].pages) {
            if (page != model::kNoPage) free_pages_.push_back(page);
        }
        slots_[slot] = {};
    }

    // Adds a slot's tokens to the next step, with the pages they need.
    void add(model::SlotId slot, std::span<const model::TokenId> tokens,
             std::uint32_t sample_count = 0, std::uint32_t logits_count = 0) {
        Slot& s = slots_[slot];
        const auto count = static_cast<std::uint32_t>(tokens.size());
        while (s.pages.size() * model::kPageTokens < s.position + count) {
            s.pages.push_back(free_pages_.back());
            free_pages_.pop_back();
            plan_.grants.push_back({slot, s.pages.back()});
        }
        plan_.sequences.push_back({slot, s.position,
                                   static_cast<std::uint32_t>(plan_.tokens.size()), count,
                                   sample_count, logits_count});
        plan_.tokens.insert(plan_.tokens.end(), tokens.begin(), tokens.end());
        s.position += count;
    }
    // The same for a stretch of a prompt, and asks how likely each of `targets` was, the first
    // after the first token.
    void add_scored(model::SlotId slot, std::span<const model::TokenId> tokens,
                    std::span<const model::TokenId> targets) {
        add(slot, tokens);
        model::SequenceStep& step = plan_.sequences.back();
        step.target_begin = static_cast<std::uint32_t>(plan_.targets.size());
        step.target_count = static_cast<std::uint32_t>(targets.size());
        plan_.targets.insert(plan_.targets.end(), targets.begin(), targets.end());
    }
    void add_drawn(model::SlotId slot, std::uint32_t logits_count = 0) {
        const model::TokenId drawn = model::kDrawnToken;
        add(slot, {&drawn, 1}, 1, logits_count);
    }

    // Opens `to` with the first full pages of `from`, as after a hit in the prefix cache.
    void reuse(model::SlotId from, model::SlotId to, std::size_t pages) {
        open(to);
        slots_[to].position = static_cast<std::uint32_t>(pages * model::kPageTokens);
        slots_[to].pages.assign(slots_[from].pages.begin(),
                                slots_[from].pages.begin() + static_cast<std::ptrdiff_t>(pages));
        for (const model::PageId page : slots_[to].pages)
            plan_.grants.push_back({to, page});
    }

    // Opens `to` with what `from` holds: all full pages shared, the last one copied.
    void fork(model::SlotId from, model::SlotId to) {
        open(to);
        Slot& source = slots_[from];
        Slot& target = slots_[to];
        target.position = source.position;
        target.pages = source.pages;
        const std::uint32_t tail = source.position % model::kPageTokens;
        if (tail != 0) {
            target.pages.back() = free_pages_.back();
            free_pages_.pop_back();
            plan_.copies.push_back({source.pages.back(), target.pages.back(), tail});
        }
        for (const model::PageId page : target.pages)
            plan_.grants.push_back({to, page});
    }

    // Gives back the pages that `window` has left behind.
    void trim(model::SlotId slot, const model::AttentionWindow& window) {
        Slot& s = slots_[slot];
        const std::uint32_t begin = std::max(s.trimmed, window.first_unread_page());
        const std::uint32_t end = window.unread_end(s.position);
        if (end <= begin) return;
        plan_.trims.push_back({slot, begin, end});
        for (std::uint32_t i = begin; i < end; ++i)
            free_pages_.push_back(std::exchange(s.pages[i], model::kNoPage));
        s.trimmed = end;
    }

    [[nodiscard]] std::size_t pages_free() const { return free_pages_.size(); }

    // Forgets the last tokens of a slot, as after a rejected draft; its pages stay.
    void rewind(model::SlotId slot, std::uint32_t tokens) { slots_[slot].position -= tokens; }

    const model::StepResult& run() {
        backend_.submit(plan_);
        backend_.wait(result_);
        plan_.clear();
        return result_;
    }

    // Feeds a whole prompt in steps of at most `chunk` tokens; the scores after its last
    // `logits_count` tokens, [logits_count][vocabulary]. Draws a token at the end.
    std::vector<float> prefill(model::SlotId slot, const Tokens& tokens,
                               std::uint32_t logits_count = 1, std::uint32_t chunk = 0) {
        if (chunk == 0) chunk = backend_.info().tokens_per_step_max;
        std::vector<float> logits;
        for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
            const std::size_t count = std::min<std::size_t>(chunk, tokens.size() - begin);
            const std::size_t end = begin + count;
            const std::size_t first_wanted = tokens.size() - logits_count;
            const std::size_t wanted =
                end <= first_wanted ? 0 : std::min(count, end - first_wanted);
            add(slot, std::span(tokens).subspan(begin, count), end == tokens.size() ? 1 : 0,
                static_cast<std::uint32_t>(wanted));
            run();
            logits.insert(logits.end(), result_.logits.begin(), result_.logits.end());
        }
        return logits;
    }

    // Draws `count` tokens one after another, the first of them already drawn by prefill().
    Tokens continue_greedily(model::SlotId slot, std::size_t count) {
        Tokens ids{result_.sampled.back().id};
        while (ids.size() < count) {
            add_drawn(slot);
            ids.push_back(run().sampled.front().id);
        }
        return ids;
    }

    [[nodiscard]] const model::StepResult& result() const { return result_; }

 private:
    struct Slot {
        std::uint32_t position = 0;
        std::uint32_t trimmed = 0;  // entries of `pages` that have been looked at by trim()
        std::vector<model::PageId> pages;
    };

    model::Backend& backend_;
    std::vector<model::PageId> free_pages_;
    std::vector<Slot> slots_;
    model::StepPlan plan_;
    model::StepResult result_;
};

struct WindowedRun {
    std::vector<float> scores;   // after the text
    std::size_t pages_most = 0;  // held after a step, the neighbour's included
};

// Feeds `text` in steps of `chunk` tokens beside a neighbour, who gets the first `beside` of each
// step's. Both give back what lies behind the window, and each takes what the other has given.
inline WindowedRun run_windowed(model::Backend& backend, const model::AttentionWindow& window,
                                const Tokens& text, std::size_t chunk, std::size_t beside) {
    EngineDriver driver(backend);
    driver.open(0);
    driver.open(1);
    const std::size_t before = driver.pages_free();
    WindowedRun out;
    for (std::size_t at = 0; at < text.size(); at += chunk) {
        const std::size_t count = std::min(chunk, text.size() - at);
        driver.add(1, std::span(text).subspan(at, std::min(beside, count)));
        driver.add(0, std::span(text).subspan(at, count), 0, at + count == text.size() ? 1 : 0);
        out.scores = driver.run().logits;
        driver.trim(0, window);
        driver.trim(1, window);
        out.pages_most = std::max(out.pages_most, before - driver.pages_free());
    }
    return out;
}

}  // namespace troupe::test
