// How a request wants its text drawn: every knob between the model's scores and the next token,
// with the ranges that the edges enforce. docs/decoding.md explains each; the order in which they
// act is fixed there. A plain value: sessions fill it, the scheduler carries it, backends obey it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/token.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// The steps whose order a request may change. `penalties` stands for repetition, frequency and
// presence together.
enum class SamplerStep : std::uint8_t { penalties, temperature, top_k, typical_p, top_p, min_p };

enum class LogprobsMode : std::uint8_t {
    raw,        // softmax of the model's own scores
    processed,  // of the scores after every step below
};

struct DecodingParams {
    double temperature = 1.0;         // [0, 2]; below 1e-5: greedy
    std::int32_t top_k = 0;           // 0 or -1: off
    double top_p = 1.0;               // [0, 1]; 0 keeps one token, 1 is off exactly
    double min_p = 0.0;               // [0, 1]
    double typical_p = 1.0;           // (0, 1]; 1 is off
    double repetition_penalty = 1.0;  // > 0, finite; over prompt and answer
    double frequency_penalty = 0.0;   // [-2, 2]; over the answer
    double presence_penalty = 0.0;    // [-2, 2]; over the answer
    std::vector<std::pair<TokenId, float>> logit_bias;  // -100..100; -100 and below: banned
    std::uint64_t seed = 0;  // always set by the edge; 0 is a seed like any other

    std::int32_t beam_width = 1;  // [1, 16]; 1: no beam search
    double length_penalty = 1.0;  // [-10, 10]; of beam search

    // The order of the steps; empty is the default: penalties, temperature, top_k, typical_p,
    // top_p, min_p.
    std::vector<SamplerStep> samplers;

    std::int32_t max_tokens = -1;   // tokens of the answer; -1: as many as the context holds
    std::int32_t min_tokens = 0;    // end tokens are masked before this many
    bool ignore_eos = false;        // end tokens are masked always
    std::vector<std::string> stop;  // <= 16 strings, none empty; matched on text
    std::vector<TokenId> stop_token_ids;
    bool include_stop = false;  // keep the stop string in the text

    bool logprobs = false;          // give each token's log-probability
    std::int32_t top_logprobs = 0;  // [0, 20]
    LogprobsMode logprobs_mode = LogprobsMode::raw;

    bool speculation = true;  // drafts may be verified; changes the time alone, never the answer

    [[nodiscard]] bool greedy() const { return temperature < 1e-5; }
    // Alternatives that come with each token.
    [[nodiscard]] std::int32_t top_shown() const { return logprobs ? top_logprobs : 0; }
    [[nodiscard]] bool beams() const { return beam_width > 1; }
    [[nodiscard]] bool penalised() const {
        return repetition_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0;
    }
    friend bool operator==(const DecodingParams&, const DecodingParams&) = default;
};

// Checks every range above, and that nothing stands in the way of a beam search; the error names
// the field, its value and the range. Token ids are checked against `vocabulary_size`.
[[nodiscard]] Result<void> validate(const DecodingParams& params, std::int32_t vocabulary_size);

// A parameter that means nothing to a beam search, which neither changes scores nor draws.
struct BeamConflict {
    std::string field;
    std::string message;  // names the field, its value and what it may be
};

// The first of those that are set; values that do nothing are allowed. Empty without beams.
[[nodiscard]] std::optional<BeamConflict> find_beam_conflict(const DecodingParams& params);

[[nodiscard]] std::string_view to_string(SamplerStep step);
[[nodiscard]] Result<SamplerStep> parse_sampler_step(std::string_view name);

}  // namespace troupe::model
