// Attention over paged keys and values for any vector type (see vector_math.hpp). Up to
// attention_tile (row, head) pairs of one KV head share every load of a key or value; their scores
// lie in scratch as [page][pair][16 slots]. Each pair's arithmetic is as if it were alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "cpu/kernels/vector_math.hpp"

namespace troupe::cpu {

// `rows` rows from `row` on by `heads` query heads from `head` on, all of KV head `kv_head`; pair
// number (r, h) is r * heads + h.
struct AttentionTile {
    const AttentionPart& part;
    std::size_t kv_head;
    std::size_t row, rows;
    std::size_t head, heads;

    [[gnu::always_inline]] std::size_t length(std::size_t pair) const {
        return part.position + row + pair / heads + 1;
    }
    [[gnu::always_inline]] std::size_t offset(std::size_t pair, std::size_t stride) const {
        return (row + pair / heads) * stride + (head + pair % heads) * part.kv.head_dim;
    }
    [[gnu::always_inline]] std::size_t pages() const {
        return (part.position + row + rows + page_tokens - 1) / page_tokens;
    }
    // Elements from the pool's start to this KV head's part of the n-th page.
    [[gnu::always_inline]] std::size_t page_at(std::size_t n) const {
        return part.pages[n] * part.kv.page_stride + kv_head * page_tokens * part.kv.head_dim;
    }
};

template <class V, class Element>
struct Attention {
    static_assert(V::attention_tile <= attention_tile_max);

    static constexpr std::size_t at_most(std::size_t a, std::size_t b) { return a < b ? a : b; }
    static constexpr std::size_t at_least_one(std::size_t a) { return a == 0 ? 1 : a; }

    static V load(const Element* x) {
        if constexpr (sizeof(Element) == 2)
            return V::load_half(x);
        else
            return V::load(x);
    }
    static V load_partial(const Element* x, std::size_t count) {
        if constexpr (sizeof(Element) == 2)
            return V::load_half_partial(x, count);
        else
            return V::load_partial(x, count);
    }

    // Scores of `Pages` pages: q [head_dim][Pairs], scores [Pages][Pairs][16].
    template <std::size_t Pairs, std::size_t Pages>
    static void score_pages(const AttentionTile& tile, std::size_t page, const float* q,
                            float* scores) {
        const auto* keys = static_cast<const Element*>(tile.part.kv.k);
        const Element* k[Pages];
        V acc[Pages][Pairs];
        for (std::size_t p = 0; p < Pages; ++p) {
            k[p] = keys + tile.page_at(page + p);
            for (std::size_t n = 0; n < Pairs; ++n)
                acc[p][n] = V::set(0.0F);
        }
        for (std::size_t d = 0; d < tile.part.kv.head_dim; ++d) {
            V key[Pages];
            for (std::size_t p = 0; p < Pages; ++p)
                key[p] = load(k[p] + d * page_tokens);
            for (std::size_t n = 0; n < Pairs; ++n) {
                const V query = V::set(q[d * Pairs + n]);
                for (std::size_t p = 0; p < Pages; ++p)
                    acc[p][n] = V::fma(query, key[p], acc[p][n]);
            }
        }
        const V scale = V::set(tile.part.scale);
        for (std::size_t p = 0; p < Pages; ++p) {
            for (std::size_t n = 0; n < Pairs; ++n) {
                (acc[p][n] * scale).store(scores + ((page + p) * Pairs + n) * page_tokens);
            }
        }
    }

    // Slots at and after a pair's end become minus infinity, whatever was stored there.
    template <std::size_t Pairs>
    static void mask(const AttentionTile& tile, float* scores) {
        for (std::size_t n = 0; n < Pairs; ++n) {
            for (std::size_t i = tile.length(n); i < tile.pages() * page_tokens; ++i) {
                scores[(i / page_tokens * Pairs + n) * page_tokens + i % page_tokens] =
                    -std::numeric_limits<float>::infinity();
            }
        }
    }

    // Scores become exp(score - maximum); inverse[n] = 1 / their sum.
    template <std::size_t Pairs>
    static void softmax(std::size_t pages, float* scores, float* inverse) {
        for (std::size_t n = 0; n < Pairs; ++n) {
            float* own = scores + n * page_tokens;
            V largest = V::set(-std::numeric_limits<float>::infinity());
            for (std::size_t p = 0; p < pages; ++p) {
                largest = V::max(V::load(own + p * Pairs * page_tokens), largest);
            }
            const V maximum = V::set(largest.largest());
            V sum = V::set(0.0F);
            for (std::size_t p = 0; p < pages; ++p) {
                float* at = own + p * Pairs * page_tokens;
                const V weight = exponential(V::load(at) - maximum);
                weight.store(at);
                sum = sum + weight;
            }
            inverse[n] = 1.0F / sum.sum();
        }
    }

    // Columns d .. d + 16 * Chunks of the outputs (the last chunk cut to `tail` where Partial).
    template <std::size_t Pairs, std::size_t Chunks, bool Partial>
    static void weigh_values(const AttentionTile& tile, std::size_t d, std::size_t tail,
                             const float* weights, const float* inverse) {
        const std::size_t head_dim = tile.part.kv.head_dim;
        const auto* values = static_cast<const Element*>(tile.part.kv.v);
        V acc[Chunks][Pairs];
        for (std::size_t c = 0; c < Chunks; ++c) {
            for (std::size_t n = 0; n < Pairs; ++n)
                acc[c][n] = V::set(0.0F);
        }
        const auto load_row = [&](const Element* row, V(&value)[Chunks]) {
            for (std::size_t c = 0; c < Chunks; ++c) {
                value[c] = Partial ? load_partial(row + 16 * c, tail) : load(row + 16 * c);
            }
        };
        const std::size_t common = tile.length(0), last = tile.length(Pairs - 1);
        for (std::size_t page = 0; page * page_tokens < common; ++page) {
            const Element* row = values + tile.page_at(page) + d;
            const float* weight = weights + page * Pairs * page_tokens;
            const std::size_t slots = at_most(common - page * page_tokens, page_tokens);
            for (std::size_t i = 0; i < slots; ++i, row += head_dim) {
                V value[Chunks];
                load_row(row, value);
                for (std::size_t n = 0; n < Pairs; ++n) {
                    const V w = V::set(weight[n * page_tokens + i]);
                    for (std::size_t c = 0; c < Chunks; ++c) {
                        acc[c][n] = V::fma(w, value[c], acc[c][n]);
                    }
                }
            }
        }
        // The triangle that only later rows see; a zero weight would not do for a stored NaN.
        for (std::size_t i = common; i < last; ++i) {
            const std::size_t page = i / page_tokens, slot = i % page_tokens;
            V value[Chunks];
            load_row(values + tile.page_at(page) + slot * head_dim + d, value);
            for (std::size_t n = 0; n < Pairs; ++n) {
                if (i >= tile.length(n)) continue;
                const V w = V::set(weights[(page * Pairs + n) * page_tokens + slot]);
                for (std::size_t c = 0; c < Chunks; ++c) {
                    acc[c][n] = V::fma(w, value[c], acc[c][n]);
                }
            }
        }
        for (std::size_t n = 0; n < Pairs; ++n) {
            float* out = tile.part.out + tile.offset(n, tile.part.out_stride) + d;
            for (std::size_t c = 0; c < Chunks; ++c) {
                const V value = acc[c][n] * V::set(inverse[n]);
                if constexpr (Partial)
                    value.store_partial(out + 16 * c, tail);
                else
                    value.store(out + 16 * c);
            }
        }
    }

    template <std::size_t Pairs>
    static void compute(const AttentionTile& tile) {
        constexpr std::size_t at_once =
            at_most(at_least_one(V::registers * 2 / 3 / Pairs), 8);  // pages: hides fma's latency
        constexpr std::size_t chunks = at_most(at_least_one(V::registers / Pairs), 4);
        const std::size_t head_dim = tile.part.kv.head_dim, pages = tile.pages();
        float* scores = tile.part.scratch;
        float* q = scores + pages * Pairs * page_tokens;
        for (std::size_t n = 0; n < Pairs; ++n) {
            const float* query = tile.part.q + tile.offset(n, tile.part.q_stride);
            for (std::size_t d = 0; d < head_dim; ++d)
                q[d * Pairs + n] = query[d];
        }

        std::size_t page = 0;
        for (; page + at_once <= pages; page += at_once) {
            score_pages<Pairs, at_once>(tile, page, q, scores);
        }
        for (; page < pages; ++page)
            score_pages<Pairs, 1>(tile, page, q, scores);
        mask<Pairs>(tile, scores);

        float inverse[Pairs];
        softmax<Pairs>(pages, scores, inverse);

        std::size_t d = 0;
        for (; d + 16 * chunks <= head_dim; d += 16 * chunks) {
            weigh_values<Pairs, chunks, false>(tile, d, 16, scores, inverse);
        }
        for (; d + 16 <= head_dim; d += 16) {
            weigh_values<Pairs, 1, false>(tile, d, 16, scores, inverse);
        }
        if (d < head_dim) weigh_values<Pairs, 1, true>(tile, d, head_dim - d, scores, inverse);
    }

    template <std::size_t... Index>
    static void dispatch(const AttentionTile& tile, std::index_sequence<Index...>) {
        using Compute = void (*)(const AttentionTile&);
        static constexpr Compute by_pairs[] = {compute<Index + 1>...};
        by_pairs[tile.rows * tile.heads - 1](tile);
    }

    // The heads [begin, end) of one KV head for all rows, cut into tiles.
    static void run(const AttentionPart& part, std::size_t kv_head, std::size_t begin,
                    std::size_t end) {
        for (std::size_t head = begin; head < end;) {
            const std::size_t heads = at_most(end - head, V::attention_tile);
            const std::size_t rows_at_once = V::attention_tile / heads;
            for (std::size_t row = 0; row < part.rows;) {
                const std::size_t rows = at_most(part.rows - row, rows_at_once);
                dispatch(AttentionTile{part, kv_head, row, rows, head, heads},
                         std::make_index_sequence<V::attention_tile>());
                row += rows;
            }
            head += heads;
        }
    }
};

template <class V>
void attention(const AttentionPart& part) {
    const std::size_t group = part.heads / part.kv.kv_heads;
    for (std::size_t head = part.head_begin; head < part.head_end;) {
        const std::size_t kv_head = head / group;
        const std::size_t group_end = (kv_head + 1) * group;
        const std::size_t end = group_end < part.head_end ? group_end : part.head_end;
        if (part.kv.type == KvType::f16) {
            Attention<V, std::uint16_t>::run(part, kv_head, head, end);
        } else {
            Attention<V, float>::run(part, kv_head, head, end);
        }
        head = end;
    }
}

}  // namespace troupe::cpu
