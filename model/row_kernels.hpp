// Passes over a whole row of scores, vectorised per instruction set. Every one gives the same bits
// on all of them: comparisons are exact, element-wise arithmetic is one fixed sequence, and sums
// run in fixed lanes that are added in one fixed order. Pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "model/philox.hpp"
#include "model/token.hpp"

namespace troupe::model {

// What one pass over a row finds: the maximum of each block of `block_size` consecutive scores, and
// of all. So the n-th largest of `maxima` is at most the n-th largest score, and a block whose
// maximum is below a threshold needs no second look.
struct BlockMaxima {
    std::size_t block_size = 0;
    std::vector<float> maxima;
    bool valid =
        false;  // no NaN, no +infinity, and something above -infinity; else ignore the rest
    float max = 0;
    TokenId argmax = 0;  // the lowest id that has it
};

// `block_size` must be a multiple of 16; `out` is overwritten, its memory reused.
void find_maxima(std::span<const float> row, std::size_t block_size, BlockMaxima& out);

// Replaces `ids` by those of all elements >= threshold, ascending. `blocks` is of the same row.
void gather_at_least(std::span<const float> row, const BlockMaxima& blocks, float threshold,
                     std::vector<TokenId>& ids);

// The sum over the row of exp((z - max) * inverse_temperature), terms in float32, sum in double.
[[nodiscard]] double exp_sum(std::span<const float> row, float max, float inverse_temperature);

// The id of the largest z / temperature + gumbel(place, id), ties to the lower id: a draw from the
// softmax of the whole row, in time that hardly depends on the temperature.
[[nodiscard]] TokenId gumbel_argmax(std::span<const float> row, const BlockMaxima& blocks,
                                    double temperature, const DrawPlace& place);

}  // namespace troupe::model
