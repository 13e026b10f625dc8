// The steps of decoding as functions on a set of candidates: each removes tokens or changes scores.
// Definitions: docs/decoding.md. Ties fall to the lower id everywhere. A set is never emptied.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/decoding_params.hpp"
#include "model/token.hpp"
#include "model/token_counts.hpp"

namespace troupe::model {

struct Candidate {
    TokenId id = 0;
    double score = 0;   // finite
    double weight = 0;  // exp(score - the set's largest), where a step has set it
};

using Candidates = std::vector<Candidate>;

// The order of a ranked list: falling score, then rising id.
[[nodiscard]] inline bool ranks_before(const Candidate& a, const Candidate& b) {
    return a.score > b.score || (a.score == b.score && a.id < b.id);
}

// Sets every weight and returns their sum. Not zero: the best has weight 1.
double set_weights(Candidates& set);

void apply_temperature(Candidates& set, double temperature);

// Repetition, then frequency and presence: once for each distinct token of `counts`.
[[nodiscard]] double penalised_score(double score, const DecodingParams& params,
                                     std::uint32_t answer_count);

// The k best; off for k <= 0.
void keep_top_k(Candidates& set, std::int32_t k);

// The shortest leading part of the ranked list whose weight reaches top_p of `total`, which is the
// weight of the set, or of a larger one that it leads (then weights must be set and reach it). Sums
// in double. Reaching allows for 1e-6 of the total: scores are float32, whose rounding would else
// make 0.5 + 0.3 miss 0.8.
void keep_top_p(Candidates& set, double top_p, std::optional<double> total = std::nullopt);

// Those with at least min_p times the largest probability.
void keep_min_p(Candidates& set, double min_p);

// Locally typical sampling (Meister et al., 2022): ranked by the distance of -ln p from the
// entropy, the shortest leading part whose probability reaches typical_p.
void keep_typical_p(Candidates& set, double typical_p);

}  // namespace troupe::model
