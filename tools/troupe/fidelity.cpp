#include "tools/troupe/fidelity.hpp"

#include <algorithm>
#include <cmath>

#include "model/math.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::tools {
namespace {

std::size_t best(std::span<const float> scores) {
    return static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) -
                                    scores.begin());
}

double mean(std::span<const float> scores) {
    double sum = 0;
    for (const float score : scores)
        sum += score;
    return sum / static_cast<double>(scores.size());
}

double standard_deviation(std::span<const float> scores) {
    const double middle = mean(scores);
    double squares = 0;
    for (const float score : scores)
        squares += (score - middle) * (score - middle);
    return std::sqrt(squares / static_cast<double>(scores.size()));
}

}  // namespace

double log_sum_exp(std::span<const float> scores) {
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const float score : scores)
        sum += model::math::exp(score - max);
    return max + model::math::log(sum);
}

RowDistance row_distance(std::span<const float> reference, std::span<const float> scores) {
    TROUPE_ASSERT(reference.size() == scores.size() && !scores.empty());
    const double reference_log_sum = log_sum_exp(reference), log_sum = log_sum_exp(scores);
    const double shift = mean(scores) - mean(reference);
    RowDistance distance;
    double largest = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
        const double log_p = reference[i] - reference_log_sum, log_q = scores[i] - log_sum;
        distance.divergence += model::math::exp(log_p) * (log_p - log_q);
        largest = std::max(largest, std::abs(double{scores[i]} - reference[i] - shift));
    }
    const double scale = standard_deviation(reference);
    distance.largest_difference = scale > 0 ? largest / scale : 0;
    distance.same_best = best(reference) == best(scores);
    return distance;
}

void Fidelity::add(const RowDistance& row) {
    divergence_sum += row.divergence;
    largest_difference = std::max(largest_difference, row.largest_difference);
    same_best += row.same_best ? 1 : 0;
    ++rows;
}

double Fidelity::mean_divergence() const {
    return divergence_sum / static_cast<double>(rows);
}

double Fidelity::same_best_share() const {
    return static_cast<double>(same_best) / static_cast<double>(rows);
}

}  // namespace troupe::tools
