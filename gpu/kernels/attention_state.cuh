// The algebra of partial softmax sums: a maximum of scores, the sum of exp(score - maximum), and
// the values weighted so. Merging is exact up to rounding whatever was covered; an empty state is
// that of no position.
#pragma once

#include "gpu/device.cuh"
#include "model/math.hpp"

namespace troupe::gpu {

// What two sums, of these maxima, are multiplied by before they are added.
struct MergeFactors {
    float maximum, own, other;
};
// An empty `other`, whose sum is 0, changes nothing. exp(-infinity) is 0.
__device__ __forceinline__ MergeFactors merge_factors(float own, float other, float other_sum) {
    if (other_sum == 0) return {own, 1, 0};
    const float larger = fmaxf(own, other);
    return {larger, model::math::exp(own - larger), model::math::exp(other - larger)};
}

// A row's result. Sums of zeros alone may differ in their sign by whose zeros they were.
__device__ __forceinline__ float final_value(float value, float inverse_sum) {
    return value * inverse_sum + 0.0F;
}

// Held by a warp: every lane has the first two, lane l has elements l, l + 32, ... of the values.
template <unsigned kDims>
struct AttentionState {
    float maximum = -INFINITY;
    float sum = 0;
    float values[kDims] = {};

    // To a maximum that is at least the present one, and finite. exp(-infinity) is 0.
    __device__ void rescale(float to) {
        const float factor = model::math::exp(maximum - to);
        maximum = to;
        sum *= factor;
        for (unsigned j = 0; j < kDims; ++j)
            values[j] *= factor;
    }

    __device__ void merge(const AttentionState& other) {
        const MergeFactors factors = merge_factors(maximum, other.maximum, other.sum);
        maximum = factors.maximum;
        sum = sum * factors.own + other.sum * factors.other;
        for (unsigned j = 0; j < kDims; ++j)
            values[j] = values[j] * factors.own + other.values[j] * factors.other;
    }

    // As [maximum, sum, `length` values].
    __device__ void store(float* at, std::uint32_t length) const {
        if (lane_index() == 0) {
            at[0] = maximum;
            at[1] = sum;
        }
        for (unsigned j = 0; j < kDims; ++j) {
            const std::uint32_t d = j * kWarpLanes + lane_index();
            if (d < length) at[2 + d] = values[j];
        }
    }
    __device__ void load(const float* at, std::uint32_t length) {
        maximum = at[0];
        sum = at[1];
        for (unsigned j = 0; j < kDims; ++j) {
            const std::uint32_t d = j * kWarpLanes + lane_index();
            if (d < length) values[j] = at[2 + d];
        }
    }
};

}  // namespace troupe::gpu
