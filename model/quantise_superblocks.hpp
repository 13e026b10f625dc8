// From float32 to the K formats. No formula says which scales lose least, so they are sought: for
// each group a number of candidates, each improved by weighted least squares for the whole numbers
// that it rounds to; the best one counts. Large numbers weigh more. Pure, and the same bits on
// every machine. What the bytes mean: superblocks.hpp.
#pragma once

#include <cstddef>
#include <span>

#include "model/superblocks.hpp"

namespace troupe::model {

// `numbers` are finite; `out` has the bytes of one block: 144, 176, 210. Scales that are beyond
// half's range become its largest.
void quantise_q4_k(std::span<const float, kSuperblock> numbers, std::byte* out);
void quantise_q5_k(std::span<const float, kSuperblock> numbers, std::byte* out);
void quantise_q6_k(std::span<const float, kSuperblock> numbers, std::byte* out);

}  // namespace troupe::model
