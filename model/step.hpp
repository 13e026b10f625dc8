// One step of the model as values: what the scheduler asks of a backend, and what comes back. Flat
// arrays that are reused from step to step, so that a step allocates nothing once they have grown.
//
// A *slot* is a running sequence as the backend knows it: its page table, its decoding parameters
// and the counts its penalties need. A *page* is room for kPageTokens tokens' keys and values in
// every layer; who owns which page is the prefix cache's business, a backend only reads and writes
// them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "model/decoding_params.hpp"
#include "model/token.hpp"

namespace troupe::model {

using SlotId = std::uint32_t;
using PageId = std::uint32_t;

inline constexpr std::uint32_t kPageTokens = 16;

// In a plan's tokens: "what this slot drew in the step before", so that a step can be planned while
// the one before it still runs.
inline constexpr TokenId kDrawnToken = -1;

// Likewise, behind the first token of a decoding sequence: "what the backend's own draft model
// proposes here". Only for backends with BackendInfo::drafts.
inline constexpr TokenId kDraftToken = -2;

// A slot begins (again). `history` is what its penalties count: prompt first, then
// `answer_count` tokens of the answer (not 0 when a preempted sequence resumes). It is left empty
// when nothing in `params` looks back. A beam search asks for more top_logprobs than a client may.
struct SlotOpen {
    SlotId slot = 0;
    DecodingParams params;
    std::uint32_t answer_index = 0;   // which of a request's n answers; part of the seed
    std::uint32_t prompt_length = 0;  // tokens before the answer's first
    std::uint32_t answer_count = 0;
    std::vector<TokenId> history;
};

// Stands for a page in a page table where the sequence's window has left it behind.
inline constexpr PageId kNoPage = std::numeric_limits<PageId>::max();

// The window has left entries [begin, end) of a slot's page table behind: they are not read any
// more, and their pages may be granted to others.
struct PageTrim {
    SlotId slot = 0;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
};

// Page `page` becomes the next entry of the slot's page table. Page tables are append-only: entry i
// holds positions [16 i, 16 i + 16). A slot that opens behind its window is granted kNoPage for
// what it will not read.
struct PageGrant {
    SlotId slot = 0;
    PageId page = 0;
};

// The first `tokens` positions of a page are copied before the step (copy on write).
struct PageCopy {
    PageId from = 0;
    PageId to = 0;
    std::uint32_t tokens = 0;
};

// A slot's share of a step: `token_count` consecutive tokens of `StepPlan::tokens`, the first at
// `position`. Keys and values of all of them are written; attention sees positions up to its own.
struct SequenceStep {
    SlotId slot = 0;
    std::uint32_t position = 0;
    std::uint32_t token_begin = 0;
    std::uint32_t token_count = 0;
    // A token is drawn after each of the last `sample_count` of them: 0 in the middle of a prompt,
    // 1 at its end and while decoding, more when a draft is verified.
    std::uint32_t sample_count = 0;
    // The raw scores after each of the last `logits_count` of them are returned (tools and tests).
    std::uint32_t logits_count = 0;
    // How likely a given token was after each of the first `target_count` of them is told: of
    // `StepPlan::targets[target_begin, target_begin + target_count)`. No token is drawn there.
    std::uint32_t target_begin = 0;
    std::uint32_t target_count = 0;
};

// What a backend does, in this order: trims, closes, opens, grants, copies, sequences.
struct StepPlan {
    std::uint64_t step = 0;
    std::vector<PageTrim> trims;
    std::vector<SlotId> closes;
    std::vector<SlotOpen> opens;
    std::vector<PageGrant> grants;
    std::vector<PageCopy> copies;
    std::vector<SequenceStep> sequences;  // a slot at most once
    std::vector<TokenId> tokens;
    std::vector<TokenId> targets;

    void clear() {
        trims.clear();
        closes.clear();
        opens.clear();
        grants.clear();
        copies.clear();
        sequences.clear();
        tokens.clear();
        targets.clear();
    }
};

struct TokenLogprob {
    TokenId id = 0;
    float logprob = 0;  // natural logarithm; -infinity for a banned token
};

// One drawn token, or a target. Its alternatives are `StepResult::top[top_begin, top_begin +
// top_count)`.
struct SampledToken {
    TokenId id = 0;
    float logprob = std::numeric_limits<float>::quiet_NaN();  // NaN where nobody asked
    std::uint32_t top_begin = 0;
    std::uint32_t top_count = 0;
};

// In the order of the plan's sequences. There are as many draws as the plan asked for, with two
// exceptions: the first that differs from what was put in place of a kDraftToken is the last, and
// where a row's scores are not finite, or allow no token, it and those behind it have none.
// Likewise the targets.
struct SequenceResult {
    SlotId slot = 0;
    std::uint32_t sampled_begin = 0;
    std::uint32_t sampled_count = 0;
    bool failed = false;  // as in the second case; if the row counts, its request fails, no other
    std::uint32_t scored_begin = 0;
    std::uint32_t scored_count = 0;
};

struct StepResult {
    std::uint64_t step = 0;
    std::vector<SequenceResult> sequences;
    std::vector<SampledToken> sampled;
    std::vector<SampledToken> scored;  // targets, with raw log-probabilities
    std::vector<TokenLogprob> top;
    std::vector<float> logits;  // [sum of logits_count][vocabulary], in plan order
    std::int64_t compute_ns = 0;
    std::int64_t sample_ns = 0;  // of compute_ns: drawing on the host; a card draws within its step
    std::int64_t idle_ns = 0;    // before the step, on a card that was asked to measure that

    void clear() {
        sequences.clear();
        sampled.clear();
        scored.clear();
        top.clear();
        logits.clear();
        compute_ns = 0;
        sample_ns = 0;
        idle_ns = 0;
    }
};

// Of the rows of a sequence from which tokens are drawn, those that count: the first, and each
// behind it as long as its token, a draft, is the one that was drawn before it. Their draws are the
// answer's; a failure counts if it comes one row behind the last draw and that row counts as well.
// `sequence` is of `plan`, `result` of `results`. 0 only where nothing is drawn.
[[nodiscard]] inline std::uint32_t rows_that_count(const StepPlan& plan,
                                                   const SequenceStep& sequence,
                                                   const StepResult& results,
                                                   const SequenceResult& result) {
    const std::uint32_t rows =
        std::min(sequence.sample_count, result.sampled_count + (result.failed ? 1U : 0U));
    const std::uint32_t first = sequence.token_begin + sequence.token_count - sequence.sample_count;
    for (std::uint32_t row = 1; row < rows; ++row) {
        const TokenId given = plan.tokens[first + row];
        const bool holds =
            given == kDraftToken || given == results.sampled[result.sampled_begin + row - 1].id;
        if (!holds) return row;
    }
    return rows;
}

}  // namespace troupe::model
