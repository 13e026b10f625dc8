// From a row of scores to a token: the decoding rules of docs/decoding.md. Pure functions of the
// row and the context; no generator state. The scratch memory is its owner's, one per thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/decoding_params.hpp"
#include "model/philox.hpp"
#include "model/row_kernels.hpp"
#include "model/sampler_steps.hpp"
#include "model/step.hpp"
#include "model/token_counts.hpp"

namespace troupe::model {

// Everything but the scores that decides a draw.
struct SamplingContext {
    const DecodingParams& params;         // validated
    const TokenCounts* counts = nullptr;  // needed if params.penalised()
    std::span<const TokenId> end_tokens;  // all that end an answer; masked as params say
    std::uint32_t answer_index = 0;       // which of a request's n answers
    std::uint32_t answer_length = 0;      // tokens of the answer before this one
    std::uint32_t position = 0;           // of the drawn token in the sequence, prompt included
};

// Memory that is reused from draw to draw; grows to a few bytes per vocabulary entry.
struct SamplerScratch {
    struct Changed {
        TokenId id = 0;
        float raw = 0;  // the model's own score
    };

    BlockMaxima blocks;
    std::vector<float> thresholds;
    std::vector<TokenId> ids;
    Candidates candidates;
    std::vector<Changed> changed;
};

// Draws one token from `row` (one score for each token of the vocabulary), which is overwritten.
// -infinity means banned. The logprob is set if params.logprobs; then the params.top_logprobs best
// alternatives are appended to `top` and the result says where. Log-probabilities are natural; raw:
// of the softmax of the row as it came; processed: of what the steps leave (for greedy: of the
// scores after bias and penalties), -infinity where they leave nothing. Empty if the row holds a
// NaN or +infinity or nothing that may be drawn.
[[nodiscard]] std::optional<SampledToken> sample(std::span<float> row,
                                                 const SamplingContext& context,
                                                 SamplerScratch& scratch,
                                                 std::vector<TokenLogprob>& top);

// How likely `target` was: its raw log-probability in `row`, and the `top_count` best, which are
// appended to `top`. Empty if the row holds a NaN or +infinity or nothing that may be drawn.
[[nodiscard]] std::optional<SampledToken> score(std::span<const float> row, TokenId target,
                                                std::int32_t top_count, SamplerScratch& scratch,
                                                std::vector<TokenLogprob>& top);

struct TokenProbability {
    TokenId id = 0;
    double probability = 0;
};

// The kept tokens after one step, by falling probability, then rising id.
struct DistributionStage {
    std::string_view name;  // "scores", "bias", "greedy" or the name of a SamplerStep
    std::vector<TokenProbability> tokens;
};

// What `sample` draws from, step by step: first the softmax of the row itself, then the state after
// each step that acts; the last is the distribution of the draw. Ranks the whole vocabulary at
// every step: for people and tests. Empty as for `sample`.
[[nodiscard]] std::optional<std::vector<DistributionStage>> distribution_stages(
    std::span<const float> row, const SamplingContext& context);

// The last of those stages' tokens.
[[nodiscard]] std::optional<std::vector<TokenProbability>> distribution(
    std::span<const float> row, const SamplingContext& context);

}  // namespace troupe::model
