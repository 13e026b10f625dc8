// The forms of the KV cache as the attention kernels read them: what is stored becomes floats, and
// from there on every form goes through the same operations. A form F has
//   key_channels: so many channels share what Keys::enter loads
//   Keys: open(block, head_dim) with one head's keys in one page; enter(d) before the first channel
//     of each key_channels; channel(d): channel d of 16 tokens
//   Values<Chunks>(block, head_dim, d): one head's values in one page, columns from d on;
//     read(token, out): 16 * Chunks of them; read_tail(token, count): the first `count` of 16
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cpu/kernels/kv_layout.hpp"

namespace troupe::cpu {

// f32 and f16.
template <class V, class Element>
struct KvFloats {
    static constexpr std::size_t key_channels = kv_head_dim_max;

    static V load(const Element* x) {
        if constexpr (std::is_same_v<Element, float>)
            return V::load(x);
        else
            return V::load_half(x);
    }

    struct Keys {
        const Element* keys;

        void open(const std::byte* block, std::size_t) {
            keys = reinterpret_cast<const Element*>(block);
        }
        void enter(std::size_t) {}
        [[nodiscard]] V channel(std::size_t d) const { return load(keys + d * page_tokens); }
    };

    template <std::size_t Chunks>
    struct Values {
        const Element* values;
        std::size_t head_dim;

        Values(const std::byte* block, std::size_t width, std::size_t d)
            : values(reinterpret_cast<const Element*>(block) + d), head_dim(width) {}
        void read(std::size_t token, V (&out)[Chunks]) const {
            for (std::size_t c = 0; c < Chunks; ++c)
                out[c] = load(values + token * head_dim + 16 * c);
        }
        [[nodiscard]] V read_tail(std::size_t token, std::size_t count) const {
            if constexpr (std::is_same_v<Element, float>)
                return V::load_partial(values + token * head_dim, count);
            else
                return V::load_half_partial(values + token * head_dim, count);
        }
    };
};

template <class V>
struct KvInt8 {
    static constexpr std::size_t key_channels = kv_head_dim_max;

    struct Keys {
        const std::int8_t* numbers;
        V step;

        void open(const std::byte* block, std::size_t head_dim) {
            numbers = reinterpret_cast<const std::int8_t*>(block) +
                      kv_scale_bytes(KvType::int8, head_dim);
            step = V::load(reinterpret_cast<const float*>(block));
        }
        void enter(std::size_t) {}
        [[nodiscard]] V channel(std::size_t d) const {
            return V::load_bytes(numbers + d * page_tokens) * step;
        }
    };

    template <std::size_t Chunks>
    struct Values {
        const float* step;
        const std::int8_t* numbers;
        std::size_t head_dim;

        Values(const std::byte* block, std::size_t width, std::size_t d)
            : step(reinterpret_cast<const float*>(block)),
              numbers(reinterpret_cast<const std::int8_t*>(block) +
                      kv_scale_bytes(KvType::int8, width) + d),
              head_dim(width) {}
        void read(std::size_t token, V (&out)[Chunks]) const {
            const V factor = V::set(step[token]);
            for (std::size_t c = 0; c < Chunks; ++c)
                out[c] = V::load_bytes(numbers + token * head_dim + 16 * c) * factor;
        }
        [[nodiscard]] V read_tail(std::size_t token, std::size_t count) const {
            return V::load_bytes_partial(numbers + token * head_dim, count) * V::set(step[token]);
        }
    };
};

template <class V>
struct KvInt4 {
    static constexpr std::size_t key_channels = kv_group_channels;

    // The steps, or with `which` 1 the offsets, of 16 tokens in the group of channel d.
    static V load_scale(const std::byte* block, std::size_t d, std::size_t which) {
        const auto* halves = reinterpret_cast<const std::uint16_t*>(block);
        return V::load_half(halves + (d / kv_group_channels * 2 + which) * page_tokens);
    }

    struct Keys {
        const std::byte* block;
        const std::byte* numbers;
        const std::byte* group;  // of the channels entered
        V step, offset;

        void open(const std::byte* at, std::size_t head_dim) {
            block = at;
            numbers = at + kv_scale_bytes(KvType::int4, head_dim);
        }
        void enter(std::size_t d) {
            step = load_scale(block, d, 0);
            offset = load_scale(block, d, 1);
            group = numbers + d / kv_group_channels * kv_group_bytes(KvPart::keys) * page_tokens;
        }
        [[nodiscard]] V channel(std::size_t d) const {
            const std::size_t n = d % kv_group_channels;
            const V low = V::template load_bits<4>(group + n % 16 * page_tokens, n / 16);
            const V high = V::template load_bits<2>(group + (16 + n % 8) * page_tokens, n / 8);
            return V::fma(V::fma(high, V::set(16.0F), low), step, offset);
        }
    };

    template <std::size_t Chunks>
    struct Values {
        const std::byte* numbers;
        std::size_t first;  // column
        std::size_t token_bytes;
        float step[Chunks][page_tokens], offset[Chunks][page_tokens];

        Values(const std::byte* block, std::size_t head_dim, std::size_t d)
            : numbers(block + kv_scale_bytes(KvType::int4, head_dim)),
              first(d),
              token_bytes(kv_number_bytes(KvType::int4, head_dim, KvPart::values)) {
            for (std::size_t c = 0; c < Chunks; ++c) {
                load_scale(block, d + 16 * c, 0).store(step[c]);
                load_scale(block, d + 16 * c, 1).store(offset[c]);
            }
        }
        [[nodiscard]] V chunk(std::size_t token, std::size_t c) const {
            const std::size_t d = first + 16 * c;
            const std::byte* group = numbers + token * token_bytes +
                                     d / kv_group_channels * kv_group_bytes(KvPart::values);
            const V number = V::template load_bits<4>(group, d % kv_group_channels / 16);
            return V::fma(number, V::set(step[c][token]), V::set(offset[c][token]));
        }
        void read(std::size_t token, V (&out)[Chunks]) const {
            for (std::size_t c = 0; c < Chunks; ++c)
                out[c] = chunk(token, c);
        }
        [[nodiscard]] V read_tail(std::size_t token, std::size_t) const { return chunk(token, 0); }
    };
};

}  // namespace troupe::cpu
