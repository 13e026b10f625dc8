// The steps of decoding.
#include "model/sampler_steps.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include "model/math.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::model {
namespace {

// What "reaches p" forgives, as a share of the total.
constexpr double kReachTolerance = 1e-6;

// The number of leading elements of the list ranked by `before` whose weights sum to `target`,
// which are moved to the front. Like quickselect: the list is never sorted as a whole.
template <class Before>
std::size_t select_leading(std::span<Candidate> set, double target, Before before) {
    constexpr std::size_t kSortedAtMost = 32;
    std::size_t begin = 0;  // everything before it is taken
    std::size_t end = set.size();
    double taken = 0;
    while (end - begin > kSortedAtMost) {
        const auto part = set.subspan(begin, end - begin);
        Candidate& middle = part[part.size() / 2];
        if (before(middle, part.front())) std::swap(middle, part.front());
        if (before(part.back(), part.front())) std::swap(part.back(), part.front());
        if (before(part.back(), middle)) std::swap(part.back(), middle);
        const Candidate pivot = middle;
        // No two are equal, so both sides are shorter than the part.
        const auto rest = std::partition(part.begin(), part.end(),
                                         [&](const Candidate& c) { return before(c, pivot); });
        const auto split = static_cast<std::size_t>(rest - part.begin());
        double mass = 0;
        for (const Candidate& c : part.first(split))
            mass += c.weight;
        if (taken + mass >= target) {
            end = begin + split;
        } else {
            taken += mass;
            begin += split;
        }
    }
    const auto part = set.subspan(begin, end - begin);
    std::sort(part.begin(), part.end(), before);
    std::size_t count = begin;
    while (count < end && (count == 0 || taken < target))
        taken += set[count++].weight;
    return count;
}

double largest_score(const Candidates& set) {
    TROUPE_ASSERT(!set.empty());
    double largest = set.front().score;
    for (const Candidate& c : set)
        largest = std::max(largest, c.score);
    return largest;
}

}  // namespace

double set_weights(Candidates& set) {
    const double largest = largest_score(set);
    double sum = 0;
    for (Candidate& c : set) {
        c.weight = math::exp(c.score - largest);
        sum += c.weight;
    }
    return sum;
}

void apply_temperature(Candidates& set, double temperature) {
    for (Candidate& c : set)
        c.score /= temperature;
}

double penalised_score(double score, const DecodingParams& params, std::uint32_t answer_count) {
    score = score > 0 ? score / params.repetition_penalty : score * params.repetition_penalty;
    if (answer_count == 0) return score;
    return score - (answer_count * params.frequency_penalty + params.presence_penalty);
}

void keep_top_k(Candidates& set, std::int32_t k) {
    if (k <= 0 || static_cast<std::size_t>(k) >= set.size()) return;
    std::nth_element(set.begin(), set.begin() + k, set.end(), ranks_before);
    set.resize(static_cast<std::size_t>(k));
}

void keep_top_p(Candidates& set, double top_p, std::optional<double> total) {
    if (top_p >= 1) return;
    const double sum = total ? *total : set_weights(set);
    set.resize(select_leading(set, (top_p - kReachTolerance) * sum, ranks_before));
}

void keep_min_p(Candidates& set, double min_p) {
    if (min_p <= 0) return;
    const double largest = largest_score(set);
    std::erase_if(set, [&](const Candidate& c) { return math::exp(c.score - largest) < min_p; });
}

void keep_typical_p(Candidates& set, double typical_p) {
    if (typical_p >= 1) return;
    const double largest = largest_score(set);
    const double sum = set_weights(set);
    // With d = score - largest: -ln p = ln sum - d, so it differs from the entropy by d - mean of
    // d.
    double mean = 0;
    for (const Candidate& c : set)
        mean += c.weight * (c.score - largest);
    mean /= sum;
    const auto distance = [&](const Candidate& c) { return std::abs(c.score - largest - mean); };
    const auto before = [&](const Candidate& a, const Candidate& b) {
        const double da = distance(a);
        const double db = distance(b);
        return da < db || (da == db && a.id < b.id);
    };
    set.resize(select_leading(set, (typical_p - kReachTolerance) * sum, before));
}

}  // namespace troupe::model
