// Log-probabilities and the `troupe` field on the wire: what every door adds to an answer. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "actors/session_events.hpp"
#include "gateway/served_model.hpp"

namespace troupe::gateway {

// A token's text where it is valid UTF-8; else its bytes as "bytes:\xf0\x9f"; the vocabulary's name
// for a control token.
[[nodiscard]] std::string token_text(const model::Tokenizer& tokenizer, model::TokenId id);

// [{"token", "logprob", "bytes", "top_logprobs": [...]}, ...]: Responses and chat. -infinity is
// null.
void append_scores(std::string& out, std::span<const actors::TokenScore> scores,
                   const model::Tokenizer& tokenizer);

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}: completions. `text_offset` is where
// the first token's text begins, in characters as the format wants it; below 0 where that text has
// lost its beginning. NaN is null and has no alternatives: nobody asked how likely the token was.
void append_completion_scores(std::string& out, std::span<const actors::TokenScore> scores,
                              const model::Tokenizer& tokenizer, std::int64_t text_offset);

// Code points of valid UTF-8.
[[nodiscard]] std::size_t count_characters(std::string_view text);

// What ended an answer and how long it took.
struct AnswerFacts {
    actors::FinishReason reason = actors::FinishReason::stop;
    actors::StopCause cause;
    actors::Usage usage;
    actors::Timings timings;
    std::optional<std::uint32_t> dropped_messages{};  // where leaving some out was allowed
    bool system_in_user = false;                      // users told the text of system messages
    std::uint32_t best_of = 0;  // candidates that it was chosen from; 0: none but itself
    double mean_logprob = 0;    // what they were ranked by
};

// The value of `troupe` in a finished answer: reason, times, seed, effective parameters.
void append_facts(std::string& out, const AnswerFacts& facts, const model::DecodingParams& params,
                  const ServedModel& served);

// The effective decoding parameters as an object.
void append_params(std::string& out, const model::DecodingParams& params);

}  // namespace troupe::gateway
