// How a model is divided over ranks, a card each: query heads with the key heads that they look at,
// and the inside of the feed-forward. Matrices that lead into them (queries, keys, values; gate and
// up) are cut by rows; those that lead out (attention's output, down) by columns, so that a rank's
// product is a part of a sum. The head is cut by rows, too. All else every rank has whole. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/hyperparameters.hpp"
#include "model/weights.hpp"
#include "runtime/base/result.hpp"

namespace troupe::gpu {

struct RankOf {
    std::uint32_t rank = 0, ranks = 1;

    [[nodiscard]] bool alone() const { return ranks == 1; }
};

struct Share {
    std::uint32_t begin = 0, count = 0;
};
// As much for each rank; the last ones may have less.
[[nodiscard]] Share share_of(std::uint32_t whole, RankOf rank);

enum class Split : std::uint8_t { whole, rows, columns };

// A rank's part of a matrix: a view of the file, or, where it had to be cut out, of a copy.
struct MatrixShare {
    model::Matrix matrix;
    std::vector<std::byte> copy;
};
[[nodiscard]] MatrixShare share_of(const model::Matrix& matrix, Split split, RankOf rank);
// Of the biases of queries, keys and values, which may be none.
[[nodiscard]] std::vector<float> share_of_biases(const std::vector<float>& biases,
                                                 const model::Hyperparameters& hp, RankOf rank);
// With a rank's numbers of heads and of the feed-forward's inner columns.
[[nodiscard]] model::Hyperparameters share_of(const model::Hyperparameters& hp, RankOf rank);

// Error: unsupported, with the numbers of ranks that there may be.
[[nodiscard]] Result<> check_divisible(const model::Hyperparameters& hp,
                                       const model::ModelWeights& weights, std::uint32_t ranks);

}  // namespace troupe::gpu
