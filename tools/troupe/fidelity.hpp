// How far one arithmetic's scores are from another's: the distance of rows, and its mean over a
// text. Pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace troupe::tools {

struct RowDistance {
    double divergence = 0;          // KL(reference || scores) of the next token, in nats
    bool same_best = false;         // both have the same largest score
    double largest_difference = 0;  // of a score, less the mean difference, in standard deviations
                                    // of the reference
};

// Two rows of scores of the same vocabulary. A shift of all scores is no distance.
[[nodiscard]] RowDistance row_distance(std::span<const float> reference,
                                       std::span<const float> scores);

struct Fidelity {
    double divergence_sum = 0;
    double largest_difference = 0;
    std::uint64_t same_best = 0;
    std::uint64_t rows = 0;

    void add(const RowDistance& row);
    [[nodiscard]] double mean_divergence() const;
    [[nodiscard]] double same_best_share() const;
};

// ln of the sum of e^score, in double.
[[nodiscard]] double log_sum_exp(std::span<const float> scores);

}  // namespace troupe::tools
