// Writes one token's keys and values into a page, in any form of the cache, for any vector type
// (see vector_math.hpp). What is written depends on this token's numbers alone.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cpu/kernels/vector_math.hpp"

namespace troupe::cpu {

template <class V>
struct KvStore {
    static void store_kv(const KvPages& kv, std::uint32_t page, std::size_t slot, const float* k,
                         const float* v) {
        for (std::size_t h = 0; h < kv.kv_heads; ++h) {
            store_head<KvPart::keys>(kv, page, h, slot, k + h * kv.head_dim);
            store_head<KvPart::values>(kv, page, h, slot, v + h * kv.head_dim);
        }
    }

 private:
    template <KvPart Part>
    static void store_head(const KvPages& kv, std::size_t page, std::size_t head, std::size_t slot,
                           const float* x) {
        std::byte* block = kv.block(Part, page, head);
        switch (kv.type) {
            case KvType::f32:
                return place<Part>(reinterpret_cast<float*>(block), kv.head_dim, slot, x);
            case KvType::f16:
                return store_halves<Part>(reinterpret_cast<std::uint16_t*>(block), kv.head_dim,
                                          slot, x);
            case KvType::int8:
                return store_bytes<Part>(block, kv.head_dim, slot, x);
            case KvType::int4:
                return store_groups<Part>(block, kv.head_dim, slot, x);
        }
    }

    // `count` numbers of a slot, where a token's numbers lie 16 apart (keys) or together (values).
    template <KvPart Part, class Element>
    static void place(Element* block, std::size_t count, std::size_t slot, const Element* x) {
        if constexpr (Part == KvPart::keys) {
            for (std::size_t d = 0; d < count; ++d)
                block[d * page_tokens + slot] = x[d];
        } else {
            std::memcpy(block + slot * count, x, count * sizeof(Element));
        }
    }

    template <KvPart Part>
    static void store_halves(std::uint16_t* block, std::size_t head_dim, std::size_t slot,
                             const float* x) {
        std::uint16_t halves[kv_head_dim_max];
        for (std::size_t d = 0; d < head_dim; d += 16) {
            V::load_partial(x + d, left(head_dim, d, 16)).store_half_partial(halves + d, 16);
        }
        place<Part>(block, head_dim, slot, halves);
    }

    template <KvPart Part>
    static void store_bytes(std::byte* block, std::size_t head_dim, std::size_t slot,
                            const float* x) {
        std::uint32_t bits = 0;
        for (std::size_t d = 0; d < head_dim; d += 32) {
            const std::uint32_t of_these =
                V::largest_magnitude_bits(load(x, head_dim, d), load(x, head_dim, d + 16));
            bits = of_these > bits ? of_these : bits;
        }
        const ByteScale scale = byte_scale(bits);
        std::int8_t numbers[kv_head_dim_max + 32] = {};
        if (scale.inverse != 0.0F) {
            const V inverse = V::set(scale.inverse);
            for (std::size_t d = 0; d < head_dim; d += 32) {
                (void)V::round_to_bytes(load(x, head_dim, d) * inverse,
                                        load(x, head_dim, d + 16) * inverse, numbers + d);
            }
        }
        reinterpret_cast<float*>(block)[slot] = scale.step;
        auto* at = reinterpret_cast<std::int8_t*>(block) + kv_scale_bytes(KvType::int8, head_dim);
        place<Part>(at, head_dim, slot, numbers);
    }

    template <KvPart Part>
    static void store_groups(std::byte* block, std::size_t head_dim, std::size_t slot,
                             const float* x) {
        constexpr std::size_t group_bytes = kv_group_bytes(Part);
        const std::size_t groups = kv_groups(head_dim);
        auto* scales = reinterpret_cast<std::uint16_t*>(block) + slot;
        auto* at = reinterpret_cast<std::uint8_t*>(block) + kv_scale_bytes(KvType::int4, head_dim);
        std::uint8_t bytes[kv_head_dim_max / kv_group_channels * group_bytes];
        for (std::size_t g = 0; g < groups; ++g) {
            const std::size_t d = g * kv_group_channels;
            std::uint8_t numbers[kv_group_channels];
            std::uint16_t* const own = scales + g * 2 * page_tokens;
            quantize_group<Part>(x + d, left(head_dim, d, kv_group_channels), own[0],
                                 own[page_tokens], numbers);
            pack_group<Part>(numbers, bytes + g * group_bytes);
        }
        place<Part>(at, groups * group_bytes, slot, bytes);
    }

    template <KvPart Part>
    static void quantize_group(const float* x, std::size_t count, std::uint16_t& step_bits,
                               std::uint16_t& offset_bits, std::uint8_t* numbers) {
        constexpr std::uint16_t half_nan = 0x7E00;
        constexpr float largest = Part == KvPart::keys ? 63.0F : 15.0F;
        // A group that is not full repeats its first number, which widens no range.
        float full[kv_group_channels];
        for (std::size_t i = 0; i < kv_group_channels; ++i)
            full[i] = x[i < count ? i : 0];
        const V a = V::load(full), b = V::load(full + 16), zero = V::set(0.0F);
        if (V::largest_magnitude_bits(a, b) >= infinity_bits) {
            step_bits = offset_bits = half_nan;
            std::memset(numbers, 0, kv_group_channels);
            return;
        }
        // + 0 makes one zero of two, of which the sets may find either.
        const float most = V::max(a, b).largest() + 0.0F;
        const float least = 0.0F - V::max(zero - a, zero - b).largest();
        step_bits = to_half((most - least) / largest);
        offset_bits = to_half(least);
        const float step = from_half(step_bits);
        const V inverse = V::set(step > 0.0F ? 1.0F / step : 0.0F);
        const V offset = V::set(from_half(offset_bits));
        const auto bounded = [&](V value) {
            return V::max(V::min((value - offset) * inverse, V::set(largest)), zero);
        };
        std::int8_t rounded[kv_group_channels];
        (void)V::round_to_bytes(bounded(a), bounded(b), rounded);
        std::memcpy(numbers, rounded, kv_group_channels);
    }

    template <KvPart Part>
    static void pack_group(const std::uint8_t* n, std::uint8_t* bytes) {
        for (std::size_t j = 0; j < 16; ++j)
            bytes[j] = static_cast<std::uint8_t>((n[j] & 15U) | (n[j + 16] & 15U) << 4U);
        if constexpr (Part == KvPart::keys) {
            for (std::size_t j = 0; j < 8; ++j) {
                bytes[16 + j] =
                    static_cast<std::uint8_t>(n[j] >> 4U | n[j + 8] >> 4U << 2U |
                                              n[j + 16] >> 4U << 4U | n[j + 24] >> 4U << 6U);
            }
        }
    }

    static constexpr std::uint32_t infinity_bits = 0x7F800000U;

    struct ByteScale {
        float step;     // what a 1 stands for; NaN where a number is not finite
        float inverse;  // 0 where all numbers become 0
    };
    static ByteScale byte_scale(std::uint32_t largest_bits) {
        if (largest_bits >= infinity_bits) return {std::numeric_limits<float>::quiet_NaN(), 0.0F};
        if (largest_bits < smallest_bits) return {0.0F, 0.0F};
        const float largest = std::bit_cast<float>(largest_bits);
        return {largest / 127.0F, 127.0F / largest};
    }

    // The vector type's own conversions.
    static std::uint16_t to_half(float x) {
        std::uint16_t half;
        V::set(x).store_half_partial(&half, 1);
        return half;
    }
    static float from_half(std::uint16_t half) {
        float x;
        V::load_half_partial(&half, 1).store_partial(&x, 1);
        return x;
    }
    static std::size_t left(std::size_t count, std::size_t from, std::size_t at_most) {
        return count - from < at_most ? count - from : at_most;
    }
    // Sixteen numbers from d on, zeros behind the end.
    static V load(const float* x, std::size_t count, std::size_t d) {
        return d < count ? V::load_partial(x + d, left(count, d, 16)) : V::set(0.0F);
    }
};

}  // namespace troupe::cpu
