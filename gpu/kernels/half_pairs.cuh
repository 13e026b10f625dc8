// Two halves in a word, as tensor units take them.
#pragma once

#include <cstring>

#include "gpu/device.cuh"

namespace troupe::gpu {

using HalfPair = std::uint32_t;

// As the bits of a half that says 1024 + n, n < 1024, in both places.
inline constexpr std::uint32_t kHalf1024 = 0x64006400U;

__device__ __forceinline__ HalfPair bits_of(__half2 pair) {
    HalfPair bits;
    memcpy(&bits, &pair, sizeof bits);
    return bits;
}
__device__ __forceinline__ __half2 halves_of(HalfPair bits) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof pair);
    return pair;
}

}  // namespace troupe::gpu
