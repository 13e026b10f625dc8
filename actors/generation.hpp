// One answer as the session's side sees it: tokens come in, text grows. An append-only log, bounded
// by the answer's token limit; readers keep their own place in it. Pure; lives with its session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/session_events.hpp"
#include "model/text_stream.hpp"
#include "model/tokenizer.hpp"

namespace troupe::actors {

class Generation {
 public:
    // The tokenizer must outlive it.
    Generation(const model::Tokenizer& tokenizer, const model::DecodingParams& params);

    // Runs arrive in order, none missing; `run` belongs to `delivery`.
    void on(const TokenRun& run, const Delivery& delivery);
    // Exactly one of these ends it; later ones are ignored and give false.
    bool on(const Finished& finished);
    bool on(const Rejected& rejected);
    bool abandon();  // cancelled before it was submitted

    [[nodiscard]] bool ended() const { return reason_.has_value(); }
    [[nodiscard]] bool started() const { return tokens_ > 0 || ended(); }

    // All of the text so far that can no longer change, in whole code points. Only grows.
    [[nodiscard]] const std::string& text() const { return text_; }
    // The tokens behind it, where log-probabilities were asked for. A token shows up when some of
    // its bytes are in text(); those of a cut stop string never do. Only grows.
    [[nodiscard]] const std::vector<TokenScore>& scores() const { return scores_; }
    [[nodiscard]] std::uint32_t tokens() const { return tokens_; }
    // Over those tokens, by which answers are ranked; needs log-probabilities to have been asked of
    // the scheduler. -infinity for an answer without a token.
    [[nodiscard]] double mean_logprob() const;

    // After the end.
    [[nodiscard]] FinishReason reason() const { return reason_.value_or(FinishReason::error); }
    [[nodiscard]] const StopCause& cause() const { return cause_; }
    [[nodiscard]] const Usage& usage() const { return usage_; }
    [[nodiscard]] const Timings& timings() const { return timings_; }
    [[nodiscard]] const std::optional<RequestError>& error() const { return error_; }

 private:
    struct HeldScore {
        TokenScore score;
        std::size_t text_begin = 0;  // where its first byte stands, or would stand, in text_
    };

    void take_token(const model::SampledToken& token, const Delivery& delivery);
    void release_scores(bool all);
    bool end(FinishReason reason);

    const model::Tokenizer& tokenizer_;
    model::TextStream stream_;
    std::size_t bytes_fed_ = 0;
    const bool wants_scores_;
    std::string text_;
    std::vector<TokenScore> scores_;
    std::deque<HeldScore> held_;
    std::uint32_t tokens_ = 0;
    double logprob_sum_ = 0;
    std::optional<FinishReason> reason_;
    StopCause cause_;
    Usage usage_;
    Timings timings_;
    std::optional<RequestError> error_;
};

// How a rejection or a failed request reads to the client.
[[nodiscard]] RequestError to_request_error(const Rejected& rejected);
[[nodiscard]] RequestError to_request_error(const Finished& finished);

// The answer to what would be more than the process may have at work.
[[nodiscard]] RequestError too_many_requests_error();

// The same for an id that never was and for one that another principal owns.
[[nodiscard]] RequestError previous_response_not_found(std::string_view id);  // 400
[[nodiscard]] RequestError response_not_found(std::string_view id);           // 404

// The answer to everything new while the server is going down.
[[nodiscard]] RequestError shutting_down_error();

}  // namespace troupe::actors
