// What the tests of the attention kernels share: a cache of one sequence in any form, calls for
// some rows and heads, and the slow truth in double.
#pragma once

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/cpu/kernels_support.hpp"

namespace troupe::test {

struct Heads {
    std::size_t heads, kv_heads, head_dim;
};

struct Window {
    std::size_t tokens = 0, sinks = 0;
};

// Keys and values of one sequence in shuffled pages; slots not written are NaN.
struct Cache {
    std::vector<float> k, v;  // [tokens][kv_heads][head_dim] as given
    std::vector<std::uint32_t> pages;
    std::vector<float> memory;
    KvPages kv;

    Cache(const Heads& shape, KvType type, std::size_t tokens, Random& random) {
        const std::size_t width = shape.kv_heads * shape.head_dim;
        k = random.floats(tokens * width, 2.0F);
        v = random.floats(tokens * width, 2.0F);
        pages.resize((tokens + page_tokens - 1) / page_tokens + 2);
        std::iota(pages.begin(), pages.end(), 0U);
        std::shuffle(pages.begin(), pages.end(), random.engine);
        const std::size_t key_bytes =
            shape.kv_heads * kv_block_bytes(type, shape.head_dim, KvPart::keys);
        const std::size_t stride =
            key_bytes + shape.kv_heads * kv_block_bytes(type, shape.head_dim, KvPart::values);
        memory.assign(stride * pages.size() / sizeof(float) + 16,
                      std::numeric_limits<float>::quiet_NaN());
        kv = {type, nullptr, nullptr, stride, shape.kv_heads, shape.head_dim};
        place();
    }
    Cache(const Cache& other)
        : k(other.k), v(other.v), pages(other.pages), memory(other.memory), kv(other.kv) {
        place();
    }
    Cache& operator=(const Cache&) = delete;

    void store(const Kernels& kernels, std::size_t tokens) {
        const std::size_t width = kv.kv_heads * kv.head_dim;
        for (std::size_t t = 0; t < tokens; ++t) {
            kernels.store_kv(kv, pages[t / page_tokens], t % page_tokens, k.data() + t * width,
                             v.data() + t * width);
        }
    }

    // What the cache holds of channel d, read by the words of kv_layout.hpp.
    [[nodiscard]] float key(std::size_t token, std::size_t head, std::size_t d) const {
        return stored(KvPart::keys, token, head, d);
    }
    [[nodiscard]] float value(std::size_t token, std::size_t head, std::size_t d) const {
        return stored(KvPart::values, token, head, d);
    }

    // A copy in 32-bit floats of what this one stands for.
    [[nodiscard]] Cache as_floats(std::size_t tokens) const {
        Random random;
        Cache out({kv.kv_heads, kv.kv_heads, kv.head_dim}, KvType::f32, tokens, random);
        for (std::size_t t = 0; t < tokens; ++t) {
            for (std::size_t i = 0; i < kv.kv_heads * kv.head_dim; ++i) {
                const std::size_t at = t * kv.kv_heads * kv.head_dim + i;
                out.k[at] = key(t, i / kv.head_dim, i % kv.head_dim);
                out.v[at] = value(t, i / kv.head_dim, i % kv.head_dim);
            }
        }
        out.store(plain_kernels(), tokens);
        return out;
    }

 private:
    void place() {
        void* start = memory.data();
        std::size_t room = memory.size() * sizeof(float);
        kv.k = static_cast<std::byte*>(std::align(64, 64, start, room));
        kv.v = kv.k + kv.kv_heads * kv_block_bytes(kv.type, kv.head_dim, KvPart::keys);
    }
    template <class T>
    static T read(const std::byte* at, std::size_t index) {
        T value;
        std::memcpy(&value, at + index * sizeof(T), sizeof(T));
        return value;
    }
    [[nodiscard]] float stored(KvPart part, std::size_t token, std::size_t head,
                               std::size_t d) const {
        const bool is_key = part == KvPart::keys;
        const std::byte* block = kv.block(part, pages[token / page_tokens], head);
        const std::size_t slot = token % page_tokens;
        const auto index = [&](std::size_t row, std::size_t rows) {
            return is_key ? row * page_tokens + slot : slot * rows + row;
        };
        const std::size_t at = index(d, kv.head_dim);
        switch (kv.type) {
            case KvType::f32:
                return read<float>(block, at);
            case KvType::f16:
                return half_to_float(read<std::uint16_t>(block, at));
            case KvType::int8:
                return static_cast<float>(read<std::int8_t>(block + 64, at)) *
                       read<float>(block, slot);
            case KvType::int4: {
                const std::size_t group = d / 32, groups = (kv.head_dim + 31) / 32, n = d % 32;
                const std::size_t bytes = is_key ? 24 : 16;
                const auto byte = [&](std::size_t j) {
                    return static_cast<unsigned>(
                        block[groups * 64 + index(group * bytes + j, groups * bytes)]);
                };
                unsigned q = byte(n % 16) >> (n / 16 * 4) & 15U;
                if (is_key) q += (byte(16 + n % 8) >> (n / 8 * 2) & 3U) * 16;
                const auto number = static_cast<float>(q);
                const float step = half_to_float(read<std::uint16_t>(block, group * 32 + slot));
                const float offset =
                    half_to_float(read<std::uint16_t>(block, group * 32 + 16 + slot));
                return std::fma(number, step, offset);
            }
        }
        return 0.0F;
    }
};

struct Query {
    std::size_t position, rows, head_begin, head_end;
};

// Writes the outputs of the query's rows and heads into `out`, which holds all positions.
// `q_sinks` as q, read where the window has sinks.
inline void attend(const Kernels& kernels, const Heads& shape, const Cache& cache,
                   const std::vector<float>& q, const Query& query, std::vector<float>& out,
                   Window window = {}, const std::vector<float>& q_sinks = {}) {
    const std::size_t width = shape.heads * shape.head_dim;
    AlignedBuffer scratch = AlignedBuffer::allocate(attention_scratch_floats(
                                                        query.position + query.rows, shape.head_dim,
                                                        window.tokens, window.sinks) *
                                                    sizeof(float))
                                .value();
    AttentionPart part;
    part.kv = cache.kv;
    part.pages = cache.pages.data();
    part.position = query.position;
    part.rows = query.rows;
    part.window = window.tokens;
    part.sinks = window.sinks;
    part.q = q.data() + query.position * width;
    part.q_stride = width;
    if (window.sinks > 0) part.q_sinks = q_sinks.data() + query.position * width;
    part.q_sinks_stride = width;
    part.out = out.data() + query.position * width;
    part.out_stride = width;
    part.heads = shape.heads;
    part.head_begin = query.head_begin;
    part.head_end = query.head_end;
    part.scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
    part.scratch = reinterpret_cast<float*>(scratch.data());
    kernels.attention(part);
}

// The output of one (position, head) in double, from what the cache holds.
inline std::vector<double> exact(const Heads& shape, const Cache& cache,
                                 const std::vector<float>& q, std::size_t position,
                                 std::size_t head, Window window = {},
                                 const std::vector<float>& q_sinks = {}) {
    const std::size_t dim = shape.head_dim, kv_head = head / (shape.heads / shape.kv_heads);
    std::vector<double> weights(position + 1), out(dim);
    double sum = 0.0;
    for (std::size_t t = 0; t <= position; ++t) {
        const bool sink = t < window.sinks;
        if (window.tokens > 0 && !sink && t + window.tokens <= position) continue;
        double score = 0.0;
        for (std::size_t d = 0; d < dim; ++d) {
            const auto& queries = sink ? q_sinks : q;
            score += double{queries[(position * shape.heads + head) * dim + d]} *
                     double{cache.key(t, kv_head, d)};
        }
        weights[t] = std::exp(score / std::sqrt(static_cast<double>(dim)));
        sum += weights[t];
    }
    for (std::size_t t = 0; t <= position; ++t) {
        for (std::size_t d = 0; weights[t] > 0 && d < dim; ++d)
            out[d] += weights[t] / sum * double{cache.value(t, kv_head, d)};
    }
    return out;
}

inline constexpr Heads attention_shapes[] = {{9, 3, 64}, {8, 4, 8},   {4, 1, 128},
                                             {5, 5, 20}, {16, 1, 12}, {2, 1, 80}};

}  // namespace troupe::test
