// From a model's rope settings to the angles of its positions. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/hyperparameters.hpp"

namespace troupe::cpu {

// Pair i of a head at position p is rotated by p * frequencies[i] and stretched by `magnitude`.
struct RopeAngles {
    std::vector<double> frequencies;
    double magnitude = 1.0;
};

// Of the layers with Rope::usual. With b the base, d the rotated elements and f_i = b^(-2i / d):
//   none          f_i
//   linear        f_i / factor
//   yarn          (1 - r_i) f_i / factor + r_i f_i, where r_i falls from 1 to 0 between the pairs
//                 that turn beta_fast and beta_slow times within the original context (Peng et al.,
//                 "YaRN", 2023, section 3.2)
//   long_factors  f_i
// each divided by factors[i] where there are any (Llama 3.1's and LongRoPE's).
[[nodiscard]] RopeAngles rope_angles(const model::Hyperparameters& hyperparameters,
                                     std::span<const float> factors);

// Of those with Rope::local.
[[nodiscard]] RopeAngles local_rope_angles(const model::Hyperparameters& hyperparameters);

}  // namespace troupe::cpu
