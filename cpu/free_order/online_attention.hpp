// Attention in one pass over the pages, for any vector type and form of the cache: scores of some
// pages, then their weights under the maximum so far, then their values; what was added under a
// lower maximum is scaled down.
#pragma once

#include <cstddef>
#include <utility>

#include "cpu/free_order/tables.hpp"
#include "cpu/kernels/attention.hpp"

namespace troupe::cpu {

template <class V, class Form>
struct OnlineAttention {
    using TwoPass = Attention<V, Form>;
    static constexpr std::size_t pages_at_once = 16;
    static constexpr float lowest =
        -1e30F;  // finite: a pair that sees nothing yet has weights of 0

    // What is known of some pairs after some pages.
    template <std::size_t Pairs>
    struct State {
        float* values;  // [Pairs][head_dim]
        float largest[Pairs];
        V sums[Pairs];

        State(float* room, std::size_t head_dim) : values(room) {
            for (std::size_t n = 0; n < Pairs; ++n) {
                largest[n] = lowest;
                sums[n] = V::set(0.0F);
            }
            for (std::size_t i = 0; i < Pairs * head_dim; ++i)
                values[i] = 0.0F;
        }
    };

    template <std::size_t Pairs>
    static void score(const AttentionTile& tile, const AttentionStretch& stretch,
                      std::size_t pages_end, const float* q, float* scores) {
        constexpr std::size_t at_once =
            TwoPass::at_most(TwoPass::at_least(V::registers * 2 / 3 / Pairs, 1), 8);
        std::size_t p = 0;
        for (; p + at_once <= stretch.pages; p += at_once) {
            for (std::size_t i = 0; tile.first && i < at_once; ++i) {
                tile.prefetch(KvPart::values, stretch.page + p + i);
                const std::size_t next = stretch.page + p + at_once + i;
                if (next < pages_end) tile.prefetch(KvPart::keys, next);
            }
            TwoPass::template score_pages<Pairs, at_once>(tile, stretch.page + p, q,
                                                          scores + p * Pairs * page_tokens);
        }
        for (; p < stretch.pages; ++p)
            TwoPass::template score_pages<Pairs, 1>(tile, stretch.page + p, q,
                                                    scores + p * Pairs * page_tokens);
        if (tile.part.softcap > 0.0F) {
            ElementKernels<V>::soft_cap(scores, stretch.pages * Pairs * page_tokens,
                                        tile.part.softcap);
        }
        if ((stretch.page + stretch.pages) * page_tokens > tile.seen(0, false).end)
            TwoPass::template mask<Pairs>(tile, stretch, scores);
    }

    // Scores become weights; factor[n] is what all before is to be multiplied by.
    template <std::size_t Pairs>
    static void weigh(std::size_t pages, float* scores, State<Pairs>& state, float* factor) {
        for (std::size_t n = 0; n < Pairs; ++n) {
            float* own = scores + n * page_tokens;
            V largest = V::set(state.largest[n]);
            for (std::size_t p = 0; p < pages; ++p)
                largest = V::max(V::load(own + p * Pairs * page_tokens), largest);
            const float maximum = largest.largest();
            V sum = V::set(0.0F);
            for (std::size_t p = 0; p < pages; ++p) {
                float* at = own + p * Pairs * page_tokens;
                const V weight = exponential(V::load(at) - V::set(maximum));
                weight.store(at);
                sum = sum + weight;
            }
            factor[n] = 1.0F;
            if (maximum > state.largest[n]) {
                alignas(64) float lanes[16];
                exponential(V::set(state.largest[n] - maximum)).store(lanes);
                factor[n] = lanes[0];
            }
            state.sums[n] = V::fma(state.sums[n], V::set(factor[n]), sum);
            state.largest[n] = maximum;
        }
    }

    template <std::size_t Pairs, std::size_t Chunks, bool Partial>
    static void add_values(const AttentionTile& tile, const AttentionStretch& stretch,
                           std::size_t d, std::size_t tail, const float* weights,
                           const float* factor, State<Pairs>& state) {
        V acc[Chunks][Pairs];
        const auto at = [&](std::size_t c, std::size_t n) {
            return state.values + n * tile.part.kv.head_dim + d + 16 * c;
        };
        for (std::size_t c = 0; c < Chunks; ++c) {
            for (std::size_t n = 0; n < Pairs; ++n) {
                acc[c][n] = Partial ? V::load_partial(at(c, n), tail) : V::load(at(c, n));
                acc[c][n] = acc[c][n] * V::set(factor[n]);
            }
        }
        TwoPass::template weigh_stretch<Pairs, Chunks, Partial>(tile, stretch, d, tail, weights,
                                                                acc);
        for (std::size_t c = 0; c < Chunks; ++c) {
            for (std::size_t n = 0; n < Pairs; ++n) {
                if constexpr (Partial)
                    acc[c][n].store_partial(at(c, n), tail);
                else
                    acc[c][n].store(at(c, n));
            }
        }
    }

    // Pages [begin, end) of the sequence; `scores` is room for them and the queries.
    template <std::size_t Pairs>
    static void add_pages(const AttentionTile& tile, std::size_t begin, std::size_t end,
                          float* scores, State<Pairs>& state) {
        constexpr std::size_t chunks =
            TwoPass::at_most(TwoPass::at_least(V::registers / Pairs, 1), 4);
        const std::size_t head_dim = tile.part.kv.head_dim;
        float* const q =
            scores + TwoPass::at_most(end - begin, pages_at_once) * Pairs * page_tokens;
        for (std::size_t n = 0; n < Pairs; ++n) {
            for (std::size_t d = 0; d < head_dim; ++d)
                q[d * Pairs + n] = tile.part.q[tile.offset(n, tile.part.q_stride) + d];
        }
        for (std::size_t page = begin; page < end; page += pages_at_once) {
            const AttentionStretch stretch{false, page, TwoPass::at_most(end - page, pages_at_once),
                                           0};
            score<Pairs>(tile, stretch, end, q, scores);
            float factor[Pairs];
            weigh<Pairs>(stretch.pages, scores, state, factor);
            std::size_t d = 0;
            for (; d + 16 * chunks <= head_dim; d += 16 * chunks)
                add_values<Pairs, chunks, false>(tile, stretch, d, 16, scores, factor, state);
            for (; d + 16 <= head_dim; d += 16)
                add_values<Pairs, 1, false>(tile, stretch, d, 16, scores, factor, state);
            if (d < head_dim)
                add_values<Pairs, 1, true>(tile, stretch, d, head_dim - d, scores, factor, state);
        }
    }

    template <std::size_t Pairs>
    static void compute(const AttentionTile& tile) {
        const std::size_t head_dim = tile.part.kv.head_dim;
        State<Pairs> state(tile.part.scratch, head_dim);
        add_pages<Pairs>(tile, 0, tile.stretch(false, 0).pages,
                         tile.part.scratch + Pairs * head_dim, state);
        for (std::size_t n = 0; n < Pairs; ++n) {
            const float inverse = 1.0F / state.sums[n].sum();
            float* out = tile.part.out + tile.offset(n, tile.part.out_stride);
            for (std::size_t d = 0; d < head_dim; ++d)
                out[d] = state.values[n * head_dim + d] * inverse;
        }
    }

    template <std::size_t Pairs>
    static void compute_pages(const AttentionTile& tile, const PartialAttention& out) {
        State<Pairs> state(out.values, tile.part.kv.head_dim);
        add_pages<Pairs>(tile, out.page_begin, out.page_end, tile.part.scratch, state);
        for (std::size_t n = 0; n < Pairs; ++n) {
            out.largest[n] = state.largest[n];
            out.sums[n] = state.sums[n].sum();
        }
    }

    template <std::size_t... Index>
    static void dispatch(const AttentionTile& tile, std::index_sequence<Index...>) {
        using Compute = void (*)(const AttentionTile&);
        static constexpr Compute by_pairs[] = {compute<Index + 1>...};
        by_pairs[tile.heads - 1](tile);
    }
    template <std::size_t... Index>
    static void dispatch(const AttentionTile& tile, const PartialAttention& out,
                         std::index_sequence<Index...>) {
        using Compute = void (*)(const AttentionTile&, const PartialAttention&);
        static constexpr Compute by_pairs[] = {compute_pages<Index + 1>...};
        by_pairs[tile.heads - 1](tile, out);
    }

    // The heads [begin, end) of one KV head for one row, cut into tiles.
    static void run(const AttentionPart& part, std::size_t kv_head, std::size_t begin,
                    std::size_t end) {
        for (std::size_t head = begin; head < end;) {
            const std::size_t heads = TwoPass::at_most(end - head, V::attention_tile);
            dispatch(AttentionTile{part, kv_head, 0, 1, head, heads, head == begin},
                     std::make_index_sequence<V::attention_tile>());
            head += heads;
        }
    }
    static void run_pages(const AttentionPart& part, std::size_t kv_head,
                          const PartialAttention& out) {
        const std::size_t heads = part.head_end - part.head_begin;
        dispatch(AttentionTile{part, kv_head, 0, 1, part.head_begin, heads, true}, out,
                 std::make_index_sequence<V::attention_tile>());
    }
};

// Calls function(form) with a value of the cache's form.
template <class V, class Function>
void with_form(KvType type, Function function) {
    switch (type) {
        case KvType::f16:
            return function(OnlineAttention<V, KvFloats<V, std::uint16_t>>());
        case KvType::f32:
            return function(OnlineAttention<V, KvFloats<V, float>>());
        case KvType::int8:
            return function(OnlineAttention<V, KvInt8<V>>());
        case KvType::int4:
            return function(OnlineAttention<V, KvInt4<V>>());
    }
}

// Only where that is quicker: one row that sees much. Elsewhere two passes over scores in the first
// cache are cheaper than going back to what was added before.
template <class V>
void online_attention(const AttentionPart& part) {
    constexpr std::size_t online_from = 1024;
    if (part.rows > 1 || part.position < online_from || part.window > 0) return attention<V>(part);
    const std::size_t group = part.heads / part.kv.kv_heads;
    for (std::size_t head = part.head_begin; head < part.head_end;) {
        const std::size_t kv_head = head / group, group_end = (kv_head + 1) * group;
        const std::size_t end = group_end < part.head_end ? group_end : part.head_end;
        with_form<V>(part.kv.type, [&](auto form) { form.run(part, kv_head, head, end); });
        head = end;
    }
}

// The heads of the part are of one KV head and fit into a tile.
template <class V>
void attend_pages(const AttentionPart& part, const PartialAttention& out) {
    const std::size_t kv_head = part.head_begin / (part.heads / part.kv.kv_heads);
    with_form<V>(part.kv.type, [&](auto form) { form.run_pages(part, kv_head, out); });
}

}  // namespace troupe::cpu
