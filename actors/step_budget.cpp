#include "actors/step_budget.hpp"

#include <algorithm>
#include <bit>

namespace troupe::actors {
namespace {

constexpr std::uint32_t kFirstPrefillTokens = 64;  // before anything has been measured
constexpr std::uint32_t kTileRows = 16;  // a part of a tile takes nearly as long as all of it
constexpr double kDisturbed = 4.0;  // a step this much above expectation was disturbed: clipped
constexpr double kShareUp = 0.5;    // weight of a new measurement that is above the estimate
constexpr double kShareDown = 0.1;

// Believes bad news sooner than good: too small a step costs throughput, too large one a promise.
void learn(double& estimate, double sample) {
    if (estimate == 0) {
        estimate = sample;
        return;
    }
    sample = std::min(sample, estimate * kDisturbed);
    estimate += (sample - estimate) * (sample > estimate ? kShareUp : kShareDown);
}

}  // namespace

std::uint32_t StepBudget::prefill_tokens(std::uint32_t decode_rows) const {
    const std::uint32_t room =
        settings_.tokens_per_step_max - std::min(settings_.tokens_per_step_max, decode_rows);
    if (prefill_token_ns_ == 0) return std::min(room, kFirstPrefillTokens);
    const std::int64_t target_ms =
        decode_rows > 0 ? settings_.step_latency_ms : settings_.prefill_latency_ms;
    const double left_ns = static_cast<double>(target_ms) * 1e6 - decode_ns(decode_rows);
    const double affordable = std::max(0.0, left_ns / prefill_token_ns_);
    // The cost of a token need not be constant: no step is more than twice the largest one known.
    const double trusted = std::max<double>(kFirstPrefillTokens, 2.0 * largest_seen_);
    const auto tokens = static_cast<std::uint32_t>(std::min({affordable, trusted, 1e9}));
    return whole_tiles(std::min(room, std::max(tokens, settings_.prefill_tokens_min)), decode_rows);
}

// As many of the tokens as make whole tiles together with the decode rows.
std::uint32_t StepBudget::whole_tiles(std::uint32_t tokens, std::uint32_t decode_rows) const {
    const std::uint32_t over = (tokens + decode_rows) % kTileRows;
    return tokens >= over + settings_.prefill_tokens_min ? tokens - over : tokens;
}

void StepBudget::observe(std::uint32_t decode_rows, std::uint32_t prefill_tokens,
                         std::int64_t compute_ns) {
    if (compute_ns <= 0) return;
    const auto spent = static_cast<double>(compute_ns);
    if (prefill_tokens == 0) {
        const std::size_t row_class = static_cast<std::size_t>(std::bit_width(decode_rows));
        learn(decode_ns_[std::min(row_class, kRowClasses - 1)], spent);
        return;
    }
    largest_seen_ = std::max(largest_seen_, prefill_tokens);
    const double own = std::max(spent - decode_ns(decode_rows), spent * 0.05);
    learn(prefill_token_ns_, own / prefill_tokens);
}

// The nearest class that has been seen, smaller ones first: too low rather than made up.
double StepBudget::decode_ns(std::uint32_t rows) const {
    if (rows == 0) return 0;
    const auto row_class =
        std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(rows)), kRowClasses - 1);
    for (std::size_t c = row_class; c > 0; --c) {
        if (decode_ns_[c] > 0) return decode_ns_[c];
    }
    for (std::size_t c = row_class + 1; c < kRowClasses; ++c) {
        if (decode_ns_[c] > 0) return decode_ns_[c];
    }
    return 0;
}

}  // namespace troupe::actors
