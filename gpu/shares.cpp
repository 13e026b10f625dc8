#include "gpu/shares.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "model/tensor_types.hpp"

namespace troupe::gpu {
namespace {

using model::Hyperparameters;
using model::Matrix;
using model::ModelWeights;

std::uint32_t block_size(const Matrix& matrix) {
    return model::tensor_type_info(matrix.type).block_size;
}

// A rank's columns must be whole blocks, which share a scale.
bool can_share(const Hyperparameters& hp, const ModelWeights& weights, std::uint32_t ranks) {
    const auto by_columns = [ranks](const Matrix& matrix) {
        return matrix.columns % (ranks * block_size(matrix)) == 0;
    };
    return hp.head_count_kv % ranks == 0 &&
           std::ranges::all_of(weights.layers, [&](const model::LayerWeights& layer) {
               return by_columns(layer.attn_output) && by_columns(layer.ffn_down);
           });
}

}  // namespace

Share share_of(std::uint32_t whole, RankOf rank) {
    const std::uint32_t each = (whole + rank.ranks - 1) / rank.ranks;
    const std::uint32_t begin = std::min(rank.rank * each, whole);
    return {begin, std::min(each, whole - begin)};
}

MatrixShare share_of(const Matrix& matrix, Split split, RankOf rank) {
    if (rank.alone() || split == Split::whole) return {matrix, {}};
    const Share rows = split == Split::rows ? share_of(matrix.rows, rank) : Share{0, matrix.rows};
    const Share columns =
        split == Split::columns ? share_of(matrix.columns, rank) : Share{0, matrix.columns};
    const std::size_t block_bytes = model::tensor_type_info(matrix.type).block_bytes;
    const std::size_t begin = columns.begin / block_size(matrix) * block_bytes;
    const std::size_t row_bytes = columns.count / block_size(matrix) * block_bytes;
    MatrixShare share;
    share.copy.reserve(rows.count * row_bytes);
    for (std::uint32_t row = rows.begin; row < rows.begin + rows.count; ++row) {
        const auto bytes = matrix.row(row).subspan(begin, row_bytes);
        share.copy.insert(share.copy.end(), bytes.begin(), bytes.end());
    }
    share.matrix = {matrix.name, matrix.type, rows.count, columns.count, share.copy, {}};
    return share;
}

std::vector<float> share_of_biases(const std::vector<float>& biases, const Hyperparameters& hp,
                                   RankOf rank) {
    if (biases.empty()) return {};
    std::vector<float> share;
    auto part = biases.begin();
    for (const std::uint32_t length : {hp.query_length(), hp.kv_length(), hp.kv_length()}) {
        const Share own = share_of(length, rank);
        share.insert(share.end(), part + own.begin, part + own.begin + own.count);
        part += length;
    }
    return share;
}

Hyperparameters share_of(const Hyperparameters& hp, RankOf rank) {
    Hyperparameters share = hp;
    share.head_count /= rank.ranks;
    share.head_count_kv /= rank.ranks;
    share.feed_forward_length /= rank.ranks;
    return share;
}

Result<> check_divisible(const Hyperparameters& hp, const ModelWeights& weights,
                         std::uint32_t ranks) {
    if (can_share(hp, weights, ranks)) return {};
    std::vector<std::uint32_t> possible;
    for (std::uint32_t n = 1; n <= hp.head_count_kv; ++n) {
        if (can_share(hp, weights, n)) possible.push_back(n);
    }
    if (possible.empty()) possible.push_back(1);
    const std::uint32_t block = block_size(weights.layers.front().ffn_down);
    return Error{ErrorKind::unsupported,
                 fmt::format("{} cards cannot share this model: its {} KV heads and the columns of "
                             "its matrices{} do not divide by {}; --gpus may be {}",
                             ranks, hp.head_count_kv,
                             block == 1 ? "" : fmt::format(", in blocks of {},", block), ranks,
                             fmt::join(possible, ", "))};
}

}  // namespace troupe::gpu
