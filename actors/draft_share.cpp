#include "actors/draft_share.hpp"

#include <algorithm>

namespace troupe::actors {
namespace {

constexpr double kGainMin = 1.02;  // below, planning ahead of the result is worth more
constexpr double kLossMax = 1.02;  // of time, for a request that gains nothing
constexpr double kHopeless = 0.8;  // of the best rate so far: more tokens will not reach it
constexpr double kProbabilityMin = 0.02;

// Expected tokens of a row with `count` draft tokens: 1 + p + p^2 + ...
double expected_tokens(double odds, std::uint32_t count) {
    double sum = 1, power = 1;
    for (std::uint32_t i = 0; i < count; ++i)
        sum += power *= odds;
    return sum;
}

}  // namespace

double DraftShare::least_gain(std::span<const Row> rows) {
    double least = rows.empty() ? 1 : expected_tokens(rows[0].odds, rows[0].granted);
    for (const Row& row : rows)
        least = std::min(least, expected_tokens(row.odds, row.granted));
    return least;
}

bool DraftShare::decide(std::span<Row> rows, const StepCost& cost, bool model_drafts,
                        std::uint32_t tokens_max) {
    candidates_.clear();
    order_.clear();
    const auto less = [](const Candidate& a, const Candidate& b) {
        return a.probability != b.probability ? a.probability < b.probability : a.row > b.row;
    };
    for (std::uint32_t i = 0; i < rows.size(); ++i) {
        rows[i].granted = 0;
        if (rows[i].most > 0) candidates_.push_back({rows[i].odds, i});
    }
    std::ranges::make_heap(candidates_, less);
    const auto count = static_cast<std::uint32_t>(rows.size());
    const bool everybody_drafts = candidates_.size() == rows.size();
    const double plain = count > 0 ? cost.of(count, false) : 1;
    double tokens = count, best_rate = kGainMin * tokens / plain;
    std::size_t best = 0;
    while (!candidates_.empty() && order_.size() < tokens_max) {
        std::ranges::pop_heap(candidates_, less);
        Candidate& next = candidates_.back();
        if (next.probability < kProbabilityMin) break;
        Row& row = rows[next.row];
        ++row.granted;
        order_.push_back(next.row);
        tokens += next.probability;
        next.probability *= row.odds;
        if (row.granted < row.most) {
            std::ranges::push_heap(candidates_, less);
        } else {
            candidates_.pop_back();
        }
        const auto drafts = static_cast<std::uint32_t>(order_.size());
        const double slower = cost.of(count + drafts, model_drafts) / plain;
        const double rate = tokens / (plain * slower);
        if (rate < best_rate * kHopeless || (!everybody_drafts && slower > kLossMax)) break;
        if (rate > best_rate && slower <= kLossMax * least_gain(rows)) {
            best_rate = rate;
            best = order_.size();
        }
    }
    for (; order_.size() > best; order_.pop_back())
        --rows[order_.back()].granted;
    return best > 0;
}

}  // namespace troupe::actors
