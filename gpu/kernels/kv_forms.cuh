// Reads and writes a token's numbers in a block of keys or values. A form F has
//   Vector(block, token, length), and its [d]: what element d stands for
//   fits(length, x): whether the form has a way of its own to say what x is
//   store(block, token, length, x)
// The last two by a whole warp, whose lane l wrote x[2 l], x[2 l + 1], and those 64 further on,
// itself. What is written depends on this token's numbers alone. Of a token whose key or value does
// not fit, the key becomes NaNs, and the value zeros: who sees it gets NaNs, and who does not may
// multiply its value by zero.
#pragma once

#include <cstring>
#include <limits>

#include "gpu/device.cuh"
#include "gpu/kernels/kv_pages.hpp"

namespace troupe::gpu {

template <KvForm kForm>
struct KvNumbers;

template <>
struct KvNumbers<KvForm::f16> {
    struct Vector {
        const std::uint16_t* halves;

        __device__ Vector(const std::byte* block, std::uint32_t token, std::uint32_t length)
            : halves(reinterpret_cast<const std::uint16_t*>(block) + token * length) {}
        __device__ float operator[](std::uint32_t d) const {
            return __half2float(__ushort_as_half(halves[d]));
        }
    };

    __device__ static bool fits(std::uint32_t length, const float* x) {
        constexpr float kTooLarge = 65520;  // becomes infinity
        bool all = true;
        for (std::uint32_t d = 2 * lane_index(); d < length; d += 2 * kWarpLanes)
            all = all && fabsf(x[d]) < kTooLarge && fabsf(x[d + 1]) < kTooLarge;
        return __ballot_sync(kAllLanes, all) == kAllLanes;
    }
    __device__ static void store(std::byte* block, std::uint32_t token, std::uint32_t length,
                                 const float* x) {
        auto* const to = reinterpret_cast<std::uint16_t*>(block) + token * length;
        for (std::uint32_t d = 2 * lane_index(); d < length; d += 2 * kWarpLanes) {
            to[d] = __half_as_ushort(__float2half_rn(x[d]));
            to[d + 1] = __half_as_ushort(__float2half_rn(x[d + 1]));
        }
    }
};

template <>
struct KvNumbers<KvForm::int8> {
    struct Vector {
        const std::int8_t* numbers;
        float step;

        __device__ Vector(const std::byte* block, std::uint32_t token, std::uint32_t length)
            : numbers(reinterpret_cast<const std::int8_t*>(block) + kv_step_bytes(KvForm::int8) +
                      token * length),
              step(reinterpret_cast<const float*>(block)[token]) {}
        __device__ float operator[](std::uint32_t d) const {
            return static_cast<float>(numbers[d]) * step;
        }
    };

    // By a step of NaN.
    __device__ static bool fits(std::uint32_t, const float*) { return true; }

    static constexpr std::uint32_t kInfinityBits = 0x7F800000U;
    static constexpr std::uint32_t kSmallestBits = 0x0D800000U;  // 2^-100; below, all become zeros

    __device__ static void store(std::byte* block, std::uint32_t token, std::uint32_t length,
                                 const float* x) {
        std::uint32_t bits = 0;  // of the largest magnitude: those of a NaN are the largest
        for (std::uint32_t d = 2 * lane_index(); d < length; d += 2 * kWarpLanes) {
            bits = larger(bits, magnitude_bits(x[d]));
            bits = larger(bits, magnitude_bits(x[d + 1]));
        }
        for (int distance = 16; distance > 0; distance /= 2)
            bits = larger(bits, __shfl_xor_sync(kAllLanes, bits, distance));
        float largest;
        memcpy(&largest, &bits, sizeof largest);
        const bool finite = bits < kInfinityBits;
        const bool zeros = !finite || bits < kSmallestBits;
        const float inverse = zeros ? 0.0F : 127.0F / largest;
        auto* const to =
            reinterpret_cast<std::int8_t*>(block) + kv_step_bytes(KvForm::int8) + token * length;
        for (std::uint32_t d = 2 * lane_index(); d < length; d += 2 * kWarpLanes) {
            to[d] = zeros ? 0 : static_cast<std::int8_t>(rintf(x[d] * inverse));
            to[d + 1] = zeros ? 0 : static_cast<std::int8_t>(rintf(x[d + 1] * inverse));
        }
        if (lane_index() != 0) return;
        reinterpret_cast<float*>(block)[token] = !finite ? std::numeric_limits<float>::quiet_NaN()
                                                 : zeros ? 0.0F
                                                         : largest / 127.0F;
    }

 private:
    __device__ static std::uint32_t magnitude_bits(float x) {
        std::uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        return bits & 0x7FFFFFFFU;
    }
    __device__ static std::uint32_t larger(std::uint32_t a, std::uint32_t b) {
        return a > b ? a : b;
    }
};

// Calls visit.template operator()<form>().
template <class Visit>
void for_kv_form(KvForm form, Visit visit) {
    switch (form) {
        case KvForm::f16:
            return visit.template operator()<KvForm::f16>();
        case KvForm::int8:
            return visit.template operator()<KvForm::int8>();
    }
}

}  // namespace troupe::gpu
