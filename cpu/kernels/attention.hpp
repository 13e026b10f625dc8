// Attention over paged keys and values for any vector type (see vector_math.hpp) and any form of
// the cache (see kv_forms.hpp). Up to attention_tile (row, head) pairs of one KV head share every
// load of a key or value; their scores lie in scratch as [page][pair][16 slots], the pages of the
// sinks before those of the window. Each pair's arithmetic is as if it were alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "cpu/kernels/kv_forms.hpp"
#include "cpu/kernels/vector_math.hpp"

namespace troupe::cpu {
namespace {

// Absolute positions [begin, end).
struct PositionRange {
    std::size_t begin, end;
};

// Whole pages that a tile looks at with the same queries. A page that holds sinks and part of the
// window is in both stretches, each pair's positions in one of them.
struct AttentionStretch {
    bool sinks;
    std::size_t page;        // of the page table, the first
    std::size_t pages;       // how many
    std::size_t score_page;  // where their scores begin
};

// `rows` rows from `row` on by `heads` query heads from `head` on, all of KV head `kv_head`; pair
// number (r, h) is r * heads + h.
struct AttentionTile {
    const AttentionPart& part;
    std::size_t kv_head;
    std::size_t row, rows;
    std::size_t head, heads;
    bool first;  // of its part and KV head: those behind it find their pages in the second cache

    [[gnu::always_inline]] std::size_t offset(std::size_t pair, std::size_t stride) const {
        return (row + pair / heads) * stride + (head + pair % heads) * part.kv.head_dim;
    }
    // What a pair sees of a stretch; both ends rise with the pair.
    [[gnu::always_inline]] PositionRange seen(std::size_t pair, bool sinks) const {
        const std::size_t length = part.position + row + pair / heads + 1;
        const std::size_t sinks_end = part.sinks < length ? part.sinks : length;
        if (sinks) return {0, sinks_end};
        const bool bounded = part.window > 0 && length > part.window + sinks_end;
        return {bounded ? length - part.window : sinks_end, length};
    }
    // Bit n: pair n sees this position.
    [[nodiscard]] std::uint32_t seen_by(std::size_t pairs, bool sinks, std::size_t position) const {
        std::uint32_t bits = 0;
        for (std::size_t n = 0; n < pairs; ++n) {
            const PositionRange range = seen(n, sinks);
            bits |= std::uint32_t{position >= range.begin && position < range.end} << n;
        }
        return bits;
    }
    [[nodiscard]] AttentionStretch stretch(bool sinks, std::size_t score_page) const {
        const std::size_t begin = seen(0, sinks).begin / page_tokens;
        const std::size_t end = seen(rows * heads - 1, sinks).end;
        const std::size_t pages = (end + page_tokens - 1) / page_tokens;
        return {sinks, begin, end == 0 ? 0 : pages - begin, score_page};
    }
    // Asks for a page's block ahead of its use, into the second cache: the first is full of scores.
    // Pages lie far apart (between two pages of a layer are all the other layers), so the processor
    // does not foresee them.
    [[gnu::always_inline]] void prefetch(KvPart which, std::size_t n) const {
        const std::byte* at = block(which, n);
        const std::size_t bytes = kv_block_bytes(part.kv.type, part.kv.head_dim, which);
        for (std::size_t i = 0; i < bytes; i += 64)
            __builtin_prefetch(at + i, 0, 2);
    }
    // This KV head's keys, or values, in the n-th page of the sequence.
    [[gnu::always_inline]] const std::byte* block(KvPart which, std::size_t n) const {
        return part.kv.block(which, part.pages[n], kv_head);
    }
};

}  // namespace

template <class V, class Form>
struct Attention {
    static_assert(V::attention_tile <= attention_tile_max);

    static constexpr std::size_t values_ahead = 3;  // pages

    static constexpr std::size_t at_most(std::size_t a, std::size_t b) { return a < b ? a : b; }
    static constexpr std::size_t at_least(std::size_t a, std::size_t b) { return a > b ? a : b; }

    // Scores of `Pages` pages from `page` on: q [head_dim][Pairs], scores [Pages][Pairs][16].
    template <std::size_t Pairs, std::size_t Pages>
    static void score_pages(const AttentionTile& tile, std::size_t page, const float* q,
                            float* scores) {
        const std::size_t head_dim = tile.part.kv.head_dim;
        typename Form::Keys keys[Pages];
        V acc[Pages][Pairs];
        for (std::size_t p = 0; p < Pages; ++p) {
            keys[p].open(tile.block(KvPart::keys, page + p), head_dim);
            for (std::size_t n = 0; n < Pairs; ++n)
                acc[p][n] = V::set(0.0F);
        }
        for (std::size_t first = 0; first < head_dim; first += Form::key_channels) {
            for (std::size_t p = 0; p < Pages; ++p)
                keys[p].enter(first);
            const std::size_t end = at_most(first + Form::key_channels, head_dim);
            for (std::size_t d = first; d < end; ++d) {
                V key[Pages];
                for (std::size_t p = 0; p < Pages; ++p)
                    key[p] = keys[p].channel(d);
                for (std::size_t n = 0; n < Pairs; ++n) {
                    const V query = V::set(q[d * Pairs + n]);
                    for (std::size_t p = 0; p < Pages; ++p)
                        acc[p][n] = V::fma(query, key[p], acc[p][n]);
                }
            }
        }
        const V scale = V::set(tile.part.scale);
        for (std::size_t p = 0; p < Pages; ++p) {
            for (std::size_t n = 0; n < Pairs; ++n)
                (acc[p][n] * scale).store(scores + (p * Pairs + n) * page_tokens);
        }
    }

    // Slots that a pair does not see become minus infinity, whatever was stored there.
    template <std::size_t Pairs>
    static void mask(const AttentionTile& tile, const AttentionStretch& stretch, float* scores) {
        const std::size_t first = stretch.page * page_tokens;
        const std::size_t last = first + stretch.pages * page_tokens;
        for (std::size_t n = 0; n < Pairs; ++n) {
            const PositionRange seen = tile.seen(n, stretch.sinks);
            const auto hide = [&](std::size_t begin, std::size_t end) {
                for (std::size_t i = begin - first; i < end - first; ++i) {
                    scores[(i / page_tokens * Pairs + n) * page_tokens + i % page_tokens] =
                        -std::numeric_limits<float>::infinity();
                }
            };
            hide(first, at_most(at_least(seen.begin, first), last));
            hide(at_most(seen.end, last), last);
        }
    }

    // Scores of all pages of a stretch. `q` is room for [head_dim][Pairs].
    template <std::size_t Pairs>
    static void score(const AttentionTile& tile, const AttentionStretch& stretch, float* q,
                      float* scores) {
        constexpr std::size_t at_once =
            at_most(at_least(V::registers * 2 / 3 / Pairs, 1), 8);  // pages: hides fma's latency
        const AttentionPart& part = tile.part;
        for (std::size_t n = 0; n < Pairs; ++n) {
            const float* query = stretch.sinks ? part.q_sinks + tile.offset(n, part.q_sinks_stride)
                                               : part.q + tile.offset(n, part.q_stride);
            for (std::size_t d = 0; d < part.kv.head_dim; ++d)
                q[d * Pairs + n] = query[d];
        }
        std::size_t p = 0;
        for (; p + at_once <= stretch.pages; p += at_once) {
            const std::size_t ahead = at_most(p + 2 * at_once, stretch.pages);
            for (std::size_t next = p + at_once; tile.first && next < ahead; ++next)
                tile.prefetch(KvPart::keys, stretch.page + next);
            score_pages<Pairs, at_once>(tile, stretch.page + p, q,
                                        scores + p * Pairs * page_tokens);
        }
        for (; p < stretch.pages; ++p)
            score_pages<Pairs, 1>(tile, stretch.page + p, q, scores + p * Pairs * page_tokens);
        if (part.softcap > 0.0F) {
            ElementKernels<V>::soft_cap(scores, stretch.pages * Pairs * page_tokens, part.softcap);
        }
        mask<Pairs>(tile, stretch, scores);
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

    // acc += weight * value for one slot of a page.
    template <std::size_t Chunks, std::size_t Pairs>
    [[gnu::always_inline]] static void weigh_slot(const float* weights, std::size_t n,
                                                  const V (&value)[Chunks],
                                                  V (&acc)[Chunks][Pairs]) {
        const V w = V::set(weights[n * page_tokens]);
        for (std::size_t c = 0; c < Chunks; ++c)
            acc[c][n] = V::fma(w, value[c], acc[c][n]);
    }

    // Adds one stretch's values, columns from d on.
    template <std::size_t Pairs, std::size_t Chunks, bool Partial>
    [[gnu::always_inline]] static void weigh_stretch(const AttentionTile& tile,
                                                     const AttentionStretch& stretch, std::size_t d,
                                                     std::size_t tail, const float* weights,
                                                     V (&acc)[Chunks][Pairs]) {
        const PositionRange first = tile.seen(0, stretch.sinks);
        const PositionRange last = tile.seen(Pairs - 1, stretch.sinks);
        for (std::size_t p = 0; p < stretch.pages; ++p) {
            const std::size_t page = stretch.page + p, start = page * page_tokens;
            const float* own = weights + (stretch.score_page + p) * Pairs * page_tokens;
            if (tile.first && d == 0 && p + values_ahead < stretch.pages)
                tile.prefetch(KvPart::values, page + values_ahead);
            const typename Form::template Values<Chunks> values(tile.block(KvPart::values, page),
                                                                tile.part.kv.head_dim, d);
            const auto read = [&](std::size_t slot, V(&value)[Chunks]) {
                if constexpr (Partial)
                    value[0] = values.read_tail(slot, tail);
                else
                    values.read(slot, value);
            };
            // Where not all pairs see a slot, only those that do take it: a zero weight would not
            // do for a stored NaN.
            const auto weigh_seen = [&](std::size_t begin, std::size_t end) {
                for (std::size_t at = begin; at < end; ++at) {
                    V value[Chunks];
                    read(at - start, value);
                    const std::uint32_t seen_by = tile.seen_by(Pairs, stretch.sinks, at);
                    for (std::size_t n = 0; n < Pairs; ++n) {
                        if ((seen_by >> n & 1U) != 0) weigh_slot(own + (at - start), n, value, acc);
                    }
                }
            };
            const std::size_t begin = at_least(first.begin, start);
            const std::size_t end = at_most(last.end, start + page_tokens);
            const std::size_t all_begin = at_most(at_least(last.begin, begin), end);
            const std::size_t all_end = at_least(at_most(first.end, end), all_begin);
            weigh_seen(begin, all_begin);
            for (std::size_t slot = all_begin - start; slot < all_end - start; ++slot) {
                V value[Chunks];
                read(slot, value);
                for (std::size_t n = 0; n < Pairs; ++n)
                    weigh_slot(own + slot, n, value, acc);
            }
            weigh_seen(all_end, end);
        }
    }

    // Columns d .. d + 16 * Chunks of the outputs (the last chunk cut to `tail` where Partial).
    template <std::size_t Pairs, std::size_t Chunks, bool Partial>
    static void weigh_values(const AttentionTile& tile, const AttentionStretch (&stretches)[2],
                             std::size_t d, std::size_t tail, const float* weights,
                             const float* inverse) {
        V acc[Chunks][Pairs];
        for (std::size_t c = 0; c < Chunks; ++c) {
            for (std::size_t n = 0; n < Pairs; ++n)
                acc[c][n] = V::set(0.0F);
        }
        for (const AttentionStretch& stretch : stretches)
            weigh_stretch<Pairs, Chunks, Partial>(tile, stretch, d, tail, weights, acc);
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
        constexpr std::size_t chunks = at_most(at_least(V::registers / Pairs, 1), 4);
        const std::size_t head_dim = tile.part.kv.head_dim;
        const AttentionStretch sinks = tile.stretch(true, 0);
        const AttentionStretch stretches[] = {sinks, tile.stretch(false, sinks.pages)};
        const std::size_t pages = sinks.pages + stretches[1].pages;
        float* scores = tile.part.scratch;
        float* q = scores + pages * Pairs * page_tokens;
        for (const AttentionStretch& s : stretches) {
            if (s.pages > 0) score<Pairs>(tile, s, q, scores + s.score_page * Pairs * page_tokens);
        }
        float inverse[Pairs];
        softmax<Pairs>(pages, scores, inverse);

        std::size_t d = 0;
        for (; d + 16 * chunks <= head_dim; d += 16 * chunks) {
            weigh_values<Pairs, chunks, false>(tile, stretches, d, 16, scores, inverse);
        }
        for (; d + 16 <= head_dim; d += 16) {
            weigh_values<Pairs, 1, false>(tile, stretches, d, 16, scores, inverse);
        }
        if (d < head_dim) {
            weigh_values<Pairs, 1, true>(tile, stretches, d, head_dim - d, scores, inverse);
        }
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
                const bool first = row == 0 && head == begin;
                dispatch(AttentionTile{part, kv_head, row, rows, head, heads, first},
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
        switch (part.kv.type) {
            case KvType::f16:
                Attention<V, KvFloats<V, std::uint16_t>>::run(part, kv_head, head, end);
                break;
            case KvType::f32:
                Attention<V, KvFloats<V, float>>::run(part, kv_head, head, end);
                break;
            case KvType::int8:
                Attention<V, KvInt8<V>>::run(part, kv_head, head, end);
                break;
            case KvType::int4:
                Attention<V, KvInt4<V>>::run(part, kv_head, head, end);
                break;
        }
        head = end;
    }
}

}  // namespace troupe::cpu
