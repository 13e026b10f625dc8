#include "actors/generation.hpp"

#include <fmt/format.h>

#include <limits>
#include <span>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

model::TextStream make_stream(const model::Tokenizer& tokenizer,
                              const model::DecodingParams& params) {
    auto stream = model::TextStream::make(
        tokenizer, {.stops = params.stop, .include_stop = params.include_stop});
    TROUPE_ASSERT(stream.has_value(), "the edge has refused empty stop strings");
    return std::move(*stream);
}

}  // namespace

Generation::Generation(const model::Tokenizer& tokenizer, const model::DecodingParams& params)
    : tokenizer_(tokenizer),
      stream_(make_stream(tokenizer, params)),
      wants_scores_(params.logprobs) {}

void Generation::on(const TokenRun& run, const Delivery& delivery) {
    if (ended()) return;
    TROUPE_ASSERT(run.first_index == tokens_, "an answer's tokens arrive in order, none missing");
    TROUPE_ASSERT(std::size_t{run.begin} + run.count <= delivery.tokens.size());
    tokens_ += run.count;
    for (std::uint32_t i = 0; i < run.count; ++i)
        logprob_sum_ += delivery.tokens[run.begin + i].logprob;
    for (std::uint32_t i = 0; i < run.count && !stream_.stop(); ++i)
        take_token(delivery.tokens[run.begin + i], delivery);
    release_scores(false);
}

void Generation::take_token(const model::SampledToken& token, const Delivery& delivery) {
    if (wants_scores_) {
        const auto first = delivery.top.begin() + token.top_begin;
        held_.push_back({.score = {.id = token.id,
                                   .logprob = token.logprob,
                                   .top = {first, first + token.top_count}},
                         .text_begin = bytes_fed_});
    }
    bytes_fed_ += tokenizer_.bytes_of(token.id).size();
    stream_.feed(std::span(&token.id, 1), text_);
}

double Generation::mean_logprob() const {
    if (tokens_ == 0) return -std::numeric_limits<double>::infinity();
    return logprob_sum_ / tokens_;
}

// Ill-formed bytes grow when they are replaced, so text_ may run ahead of the bytes fed: a token
// then shows up a little early, never twice and never out of order.
void Generation::release_scores(bool all) {
    const bool nothing_held = text_.size() >= bytes_fed_ && !stream_.stop();
    while (!held_.empty() && (all || nothing_held || held_.front().text_begin < text_.size())) {
        scores_.push_back(std::move(held_.front().score));
        held_.pop_front();
    }
}

bool Generation::end(FinishReason reason) {
    if (ended()) return false;
    reason_ = reason;
    stream_.finish(text_);
    release_scores(!stream_.stop());
    held_.clear();
    return true;
}

bool Generation::on(const Finished& finished) {
    if (!end(finished.reason)) return false;
    cause_ = finished.cause;
    usage_ = finished.usage;
    timings_ = {finished.queued_ns, finished.prefill_ns, finished.decode_ns};
    if (finished.reason == FinishReason::error || finished.reason == FinishReason::shutdown)
        error_ = to_request_error(finished);
    return true;
}

bool Generation::on(const Rejected& rejected) {
    if (!end(FinishReason::error)) return false;
    error_ = to_request_error(rejected);
    return true;
}

bool Generation::abandon() {
    return end(FinishReason::cancelled);
}

RequestError to_request_error(const Rejected& rejected) {
    switch (rejected.reason) {
        case Rejected::Reason::overloaded:
            return {.status = 429,
                    .code = "rate_limit_exceeded",
                    .message = rejected.message,
                    .param = {},
                    .retry_after_ms = rejected.retry_after_ms};
        case Rejected::Reason::never_fits:
            return {.status = 400,
                    .code = "context_length_exceeded",
                    .message = rejected.message,
                    .param = {}};
        case Rejected::Reason::too_wide:
            return {.status = 400,
                    .code = "invalid_parameter",
                    .message = rejected.message,
                    .param = "beam_width"};
        case Rejected::Reason::shutting_down:
            break;
    }
    return shutting_down_error();
}

RequestError to_request_error(const Finished& finished) {
    if (finished.reason == FinishReason::shutdown) return shutting_down_error();
    return {
        .status = 500,
        .code = "server_error",
        .message = finished.error.empty() ? "The model failed on this request." : finished.error,
        .param = {}};
}

RequestError too_many_requests_error() {
    return {.status = 429,
            .code = "rate_limit_exceeded",
            .message = "The server has as many requests as it can hold; try again in a moment.",
            .param = {},
            .retry_after_ms = 2000};
}

RequestError previous_response_not_found(std::string_view id) {
    return {.status = 400,
            .code = "previous_response_not_found",
            .message = fmt::format("There is no response \"{}\" to continue.", id.substr(0, 100)),
            .param = "previous_response_id"};
}

RequestError response_not_found(std::string_view id) {
    return {.status = 404,
            .code = "response_not_found",
            .message = fmt::format("There is no response \"{}\".", id.substr(0, 100)),
            .param = "response_id"};
}

RequestError shutting_down_error() {
    return {.status = 503,
            .code = "overloaded",
            .message = "The server is shutting down; try again in a moment.",
            .param = {},
            .retry_after_ms = 5000};
}

}  // namespace troupe::actors
