// Reductions over a block of kSampleThreads whose result does not depend on the order: maxima of
// keys and doubles, sums of integers; and the selection of a leading part of a ranked row.
#pragma once

#include <cstdint>
#include <limits>

#include "gpu/device.cuh"

namespace troupe::gpu {

inline constexpr unsigned kSampleThreads = 256;
inline constexpr unsigned kDigitBins = 256;

// A score's rank as an integer: falling score first, then rising token id. Of two keys the larger
// ranks before. 0 is the key of no token.
using RankKey = std::uint64_t;

__device__ __forceinline__ RankKey rank_key(float score, std::uint32_t token) {
    if (!(score >= -std::numeric_limits<float>::max())) return 0;  // banned
    std::uint32_t bits;
    score += 0.0F;  // -0 equals +0
    memcpy(&bits, &score, sizeof bits);
    bits = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
    return RankKey{bits} << 32 | static_cast<std::uint32_t>(~token);
}
__device__ __forceinline__ std::uint32_t token_of(RankKey key) {
    return ~static_cast<std::uint32_t>(key);
}
__device__ __forceinline__ float score_of(RankKey key) {
    auto bits = static_cast<std::uint32_t>(key >> 32);
    bits = (bits & 0x80000000U) != 0 ? bits & 0x7FFFFFFFU : ~bits;
    float score;
    memcpy(&score, &bits, sizeof score);
    return score;
}

// What `combine` makes of every thread's value, in every thread. `scratch`: [kSampleThreads / 32].
template <class T, class Combine>
__device__ T block_reduce(T value, T* scratch, Combine combine) {
    for (int distance = 16; distance > 0; distance /= 2)
        value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
    if (lane_index() == 0) scratch[warp_index()] = value;
    __syncthreads();
    value = scratch[0];
    for (unsigned warp = 1; warp < kSampleThreads / kWarpLanes; ++warp)
        value = combine(value, scratch[warp]);
    __syncthreads();
    return value;
}

// The smallest key of the shortest leading part of the row's ranking whose weights sum to at least
// `target` (> 0), or 1 where all together do not. weight_of(score) is an integer, so the sums are
// exact in any order. Eight passes, a byte of the key each, over a histogram of weights: no sort.
template <class WeightOf>
__device__ RankKey leading_part(const float* scores, std::uint32_t count, std::uint64_t target,
                                unsigned long long* bins, WeightOf weight_of) {
    RankKey prefix = 0;
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (unsigned bin = threadIdx.x; bin < kDigitBins; bin += kSampleThreads)
            bins[bin] = 0;
        __syncthreads();
        for (std::uint32_t i = threadIdx.x; i < count; i += kSampleThreads) {
            const RankKey key = rank_key(scores[i], i);
            const bool under_prefix = shift == 56 || key >> (shift + 8) == prefix >> (shift + 8);
            if (key != 0 && under_prefix)
                atomicAdd(bins + (key >> shift & 255U), weight_of(scores[i]));
        }
        __syncthreads();
        // Every thread walks the bins for itself: they are few, and none has to be told.
        int digit = 255;
        while (digit > 0 && bins[digit] < target) {
            target -= bins[digit];
            --digit;
        }
        const bool reached = bins[digit] >= target;
        __syncthreads();
        if (!reached) return 1;
        prefix |= static_cast<RankKey>(digit) << shift;
    }
    return prefix;
}

}  // namespace troupe::gpu
