// A mixture of experts: each row asks the few that its router scores highest. The rows that ask an
// expert are gathered and go through it together; a row's sum runs over its experts in ascending
// order, so that it depends on that row alone.
#include <algorithm>
#include <limits>
#include <numeric>

#include "cpu/forward.hpp"
#include "model/math.hpp"

namespace troupe::cpu {
namespace {

constexpr std::uint32_t kRowsPerPiece = 8;

}  // namespace

// The best experts of a row, ties to the lower, and the softmax of their scores. `order` is room
// for all experts.
void Forward::choose_experts(std::uint32_t row, std::vector<std::uint32_t>& order) {
    const float* const scores = router_scores_.row(row);
    const auto rank = [scores](std::uint32_t expert) {
        const float score = scores[expert];
        return score == score ? score : -std::numeric_limits<float>::infinity();
    };
    const std::uint32_t used = hp_.expert_used_count;
    const std::span chosen(choices_.data() + std::size_t{row} * used, used);
    order.resize(hp_.expert_count);
    std::iota(order.begin(), order.end(), 0U);
    std::partial_sort(order.begin(), order.begin() + used, order.end(),
                      [&](std::uint32_t a, std::uint32_t b) {
                          return rank(a) != rank(b) ? rank(a) > rank(b) : a < b;
                      });
    float sum = 0;
    for (std::uint32_t i = 0; i < used; ++i) {
        chosen[i] = {order[i], model::math::exp(scores[order[i]] - scores[order[0]])};
        sum += chosen[i].share;
    }
    for (Choice& choice : chosen)
        choice.share /= sum;
}

void Forward::add_expert(const PackedLayer& layer, std::uint32_t index, Gate gate) {
    const PackedExpert& expert = layer.experts[index];
    expert_rows_.clear();
    expert_shares_.clear();
    for (std::size_t i = 0; i < choices_.size(); ++i) {
        if (choices_[i].expert != index) continue;
        expert_rows_.push_back(static_cast<std::uint32_t>(i / hp_.expert_used_count));
        expert_shares_.push_back(choices_[i].share);
    }
    const auto count = static_cast<std::uint32_t>(expert_rows_.size());
    if (count == 0) return;
    const PackedMatrix consumers[] = {expert.gate, expert.up};
    for_each_range(
        threads_, count, kRowsPerPiece, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
            for (std::uint32_t i = begin; i < end; ++i) {
                normalise_row(x_.row(expert_rows_[i]), layer.ffn_norm, consumers, gathered_, i);
            }
        });
    gate_up(expert, gathered_, gate, count);
    multiply(expert.down, ffn_, count, branch_.data(), branch_.stride, Accumulate::store);
    for_each_range(threads_, count, kRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t i = begin; i < end; ++i) {
                           float* const out = mixed_.row(expert_rows_[i]);
                           const float* const branch = branch_.row(i);
                           for (std::uint32_t k = 0; k < hp_.embedding_length; ++k)
                               out[k] += expert_shares_[i] * branch[k];
                       }
                   });
}

void Forward::add_experts(const PackedLayer& layer, Gate gate, std::uint32_t rows) {
    multiply(layer.router, normed_, rows, router_scores_.data(), router_scores_.stride,
             Accumulate::store);
    choices_.resize(std::size_t{rows} * hp_.expert_used_count);
    for_each_range(threads_, rows, kRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t worker) {
                       for (std::uint32_t row = begin; row < end; ++row)
                           choose_experts(row, scratch_[worker].experts);
                   });
    std::fill_n(mixed_.data(), rows * mixed_.stride, 0.0F);
    for (std::uint32_t expert = 0; expert < hp_.expert_count; ++expert)
        add_expert(layer, expert, gate);
    for_each_range(threads_, rows, kRowsPerPiece,
                   [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
                       for (std::uint32_t row = begin; row < end; ++row)
                           kernels_.add(x_.row(row), mixed_.row(row), hp_.embedding_length);
                   });
}

}  // namespace troupe::cpu
