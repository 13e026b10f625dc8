// Attention on tensor units (FlashAttention-2; Dao, 2023). The query heads that share a key, of the
// rows of an item, are the rows of products, 16 at a time, all against one tile of keys and values
// in shared memory. Warps share 16 queries: each takes some positions of the tile for the scores,
// and some elements of the head for the sums of values. In between they tell each other maxima, and
// weights, rounded to halves. Each tile moves the running maximum; 256 positions make a state, and
// states are merged as in attention.cu.
//
// A row of a product does not meet the others, and a tile that a row sees nothing of changes no bit
// of its state. So it does not matter which rows share a block, or that a decoding row leaves most
// of a product idle. Which warp has which positions changes no bit, either: a maximum has no order,
// and sums are of all positions in theirs.
#include "gpu/device.cuh"
#include "gpu/kernels/attention.hpp"
#include "gpu/kernels/attention_state.cuh"
#include "gpu/kernels/half_pairs.cuh"
#include "gpu/kernels/kv_tiles.cuh"
#include "gpu/ptx.cuh"

namespace troupe::gpu {
namespace {

constexpr unsigned kTeamQueries = 16;
constexpr unsigned kWarpsMax = 8;

constexpr float kLog2E = 1.44269504F;
// Weights lie in (0, 2^15], so that a half keeps those down to 2^-29 of the best with all its bits.
constexpr float kWeightExponent = 15;

// The warps that share 16 queries: so many that what each holds of them stays in registers.
template <unsigned kDims>
struct Team {
    static constexpr unsigned kWarps = kDims > 128 ? 4 : 2;
    static constexpr unsigned kPositions = TileShape<kDims>::kTokens / kWarps;  // of a warp
    static constexpr unsigned kElements = kDims / kWarps;                       // likewise
    // What they tell each other. Rows of weights lie apart as those of a tile.
    static constexpr unsigned kWeightStride = TileShape<kDims>::kTokens + 8;  // halves
    static constexpr std::size_t kWeightBytes =
        kTeamQueries * kWeightStride * sizeof(std::uint16_t);
    static constexpr std::size_t kBytes = kWeightBytes + kWarps * kTeamQueries * sizeof(float);

    std::uint16_t* weights;  // [queries][stride]
    float* maxima;           // [warps][queries]

    __device__ explicit Team(std::byte* shared)
        : weights(reinterpret_cast<std::uint16_t*>(shared)),
          maxima(reinterpret_cast<float*>(shared + kWeightBytes)) {}
};
__device__ __forceinline__ unsigned warp_of_team(unsigned team_warps) {
    return warp_index() % team_warps;
}

// 16 queries as halves, spread over a warp as the left operand of kDims / 32 products.
template <unsigned kDims>
using Queries = HalfPair[kDims / 32][8];

// 16 queries against a warp's positions: number i of [n] is that of query g + i / 2 * 8, position
// 8 n + 2 t + i % 2.
template <unsigned kDims>
using Scores = float[Team<kDims>::kPositions / 8][4];

// A row and a head, a row of a product. Found anew wherever it is wanted, to hold no registers.
struct Query {
    std::uint32_t row_of_item, head;
    bool exists;
};

// The lane's query g + 8 r.
template <unsigned kDims>
__device__ __forceinline__ Query query_of(const Attention& p, const AttentionItem& item,
                                          unsigned r) {
    const std::uint32_t index =
        warp_index() / Team<kDims>::kWarps * kTeamQueries + lane_index() / 4 + 8 * r;
    const std::uint32_t heads_per_kv = p.heads / p.kv.kv_heads;
    const std::uint32_t row = index / heads_per_kv;
    return {row, blockIdx.y * heads_per_kv + index % heads_per_kv, row < item.row_count};
}
// Its elements, as it looks at sinks or at all else; null where the item has no such row.
__device__ __forceinline__ const float* elements_of(const Attention& p, const AttentionItem& item,
                                                    const Query& query, bool sinks) {
    if (!query.exists) return nullptr;
    const std::size_t row = item.row + query.row_of_item;
    return sinks ? p.q_sinks + (row * p.heads + query.head) * p.kv.head_length
                 : p.q + row * p.q_stride + query.head * p.kv.head_length;
}

// Elements 32 step .. + 31 of a lane's two queries, scaled; zeros where there are none.
__device__ __forceinline__ void load_step(const Attention& p, const float* lower,
                                          const float* upper, unsigned step, HalfPair (&a)[8]) {
#pragma unroll
    for (unsigned i = 0; i < 8; ++i) {
        const float* const query = i % 2 == 0 ? lower : upper;
        const std::uint32_t d = step * 32 + i / 2 * 8 + lane_index() % 4 * 2;
        a[i] = 0;
        if (query == nullptr || d >= p.kv.head_length) continue;
        const float2 pair = *reinterpret_cast<const float2*>(query + d);
        a[i] = bits_of(__floats2half2_rn(pair.x * p.scale, pair.y * p.scale));
    }
}

template <unsigned kDims>
__device__ __forceinline__ void load_queries(const Attention& p, const AttentionItem& item,
                                             Queries<kDims>& queries) {
    const float* const lower = elements_of(p, item, query_of<kDims>(p, item, 0), false);
    const float* const upper = elements_of(p, item, query_of<kDims>(p, item, 1), false);
#pragma unroll
    for (unsigned step = 0; step < kDims / 32; ++step)
        load_step(p, lower, upper, step, queries[step]);
}

// What a product wants of keys: positions 8 n .. + 7, elements 32 step .. + 31.
template <unsigned kDims>
__device__ __forceinline__ void load_keys(const std::uint16_t* keys, unsigned n, unsigned step,
                                          HalfPair (&b)[4]) {
    constexpr unsigned kStride = TileShape<kDims>::kStride;
    ptx::load_matrices(b, keys + lane_index() % 8 * kStride + lane_index() / 8 * 8,
                       (n * 8 * kStride + step * 32) * sizeof(std::uint16_t));
}

// `keys`: from the warp's first position on.
template <unsigned kDims>
__device__ __forceinline__ void score_tile(const Queries<kDims>& queries, const std::uint16_t* keys,
                                           Scores<kDims>& scores) {
#pragma unroll
    for (unsigned step = 0; step < kDims / 32; ++step) {
#pragma unroll
        for (unsigned n = 0; n < Team<kDims>::kPositions / 8; ++n) {
            HalfPair b[4];
            load_keys<kDims>(keys, n, step, b);
            ptx::mma_16x8x16_twice(scores[n], queries[step], b);
        }
    }
}

// Sinks are few, and in the first tiles: their queries are loaded as they are needed.
template <unsigned kDims>
__device__ __forceinline__ void score_sinks(const Attention& p, const AttentionItem& item,
                                            std::uint32_t first, const std::uint16_t* keys,
                                            Scores<kDims>& scores) {
    const float* const lower = elements_of(p, item, query_of<kDims>(p, item, 0), true);
    const float* const upper = elements_of(p, item, query_of<kDims>(p, item, 1), true);
#pragma unroll
    for (unsigned n = 0; n < Team<kDims>::kPositions / 8; ++n) {
        if (first + n * 8 >= p.sinks) break;
        float own[4] = {};
#pragma unroll 1
        for (unsigned step = 0; step < kDims / 32; ++step) {
            HalfPair a[8], b[4];
            load_step(p, lower, upper, step, a);
            load_keys<kDims>(keys, n, step, b);
            ptx::mma_16x8x16_twice(own, a, b);
        }
#pragma unroll
        for (unsigned i = 0; i < 4; ++i) {
            const std::uint32_t position = first + n * 8 + lane_index() % 4 * 2 + i % 2;
            if (position < p.sinks) scores[n][i] = own[i];
        }
    }
}

template <unsigned kDims>
__device__ __forceinline__ void hide_unseen(const Attention& p, const AttentionItem& item,
                                            std::uint32_t first, Scores<kDims>& scores) {
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
        const Query query = query_of<kDims>(p, item, r);
        const SeenPositions seen =
            query.exists
                ? seen_positions(item.place.position + query.row_of_item, p.window, p.sinks)
                : SeenPositions{};
#pragma unroll
        for (unsigned n = 0; n < Team<kDims>::kPositions / 8; ++n) {
#pragma unroll
            for (unsigned i = 0; i < 2; ++i) {
                const std::uint32_t position = first + n * 8 + lane_index() % 4 * 2 + i;
                if (!seen.contains(position)) scores[n][2 * r + i] = -INFINITY;
            }
        }
    }
}

// Tells the team this warp's largest scores.
template <unsigned kDims>
__device__ __forceinline__ void tell_maxima(const Scores<kDims>& scores, const Team<kDims>& team) {
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
        float largest = -INFINITY;
#pragma unroll
        for (unsigned n = 0; n < Team<kDims>::kPositions / 8; ++n)
            largest = fmaxf(largest, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
        largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
        if (lane_index() % 4 == 0) {
            const unsigned query = lane_index() / 4 + 8 * r;
            team.maxima[warp_of_team(Team<kDims>::kWarps) * kTeamQueries + query] = largest;
        }
    }
}

// The states of 16 queries, spread over a warp: of queries g and g + 8 four lanes have the same
// maximum, their own part of the sum until add_lanes(), and of the warp's elements what a product
// leaves them.
template <unsigned kElements>
struct TileState {
    float maximum[2] = {-INFINITY, -INFINITY};
    float sum[2] = {};
    float values[kElements / 8][4] = {};

    __device__ __forceinline__ void scale(const float (&factors)[2]) {
        sum[0] *= factors[0];
        sum[1] *= factors[1];
#pragma unroll
        for (unsigned i = 0; i < kElements / 2; ++i)
            values[i / 4][i % 4] *= factors[i % 4 / 2];
    }
    __device__ __forceinline__ void add_lanes() {
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) {
            sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 1);
            sum[r] += __shfl_xor_sync(kAllLanes, sum[r], 2);
        }
    }
    __device__ __forceinline__ void merge(const TileState& other) {
        const MergeFactors factors[2] = {merge_factors(maximum[0], other.maximum[0], other.sum[0]),
                                         merge_factors(maximum[1], other.maximum[1], other.sum[1])};
#pragma unroll
        for (unsigned r = 0; r < 2; ++r) {
            maximum[r] = factors[r].maximum;
            sum[r] = sum[r] * factors[r].own + other.sum[r] * factors[r].other;
        }
#pragma unroll
        for (unsigned i = 0; i < kElements / 2; ++i) {
            const MergeFactors& of_row = factors[i % 4 / 2];
            float& value = values[i / 4][i % 4];
            value = value * of_row.own + other.values[i / 4][i % 4] * of_row.other;
        }
    }
};

// Once all maxima are told: brings the state to the tile's, and tells the team the weights of this
// warp's positions.
template <unsigned kDims>
__device__ __forceinline__ void weigh(const Scores<kDims>& scores, const Team<kDims>& team,
                                      TileState<Team<kDims>::kElements>& state) {
    using Shape = Team<kDims>;
    float factors[2];
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
        const unsigned query = lane_index() / 4 + 8 * r;
        float maximum = state.maximum[r];
#pragma unroll
        for (unsigned warp = 0; warp < Shape::kWarps; ++warp)
            maximum = fmaxf(maximum, team.maxima[warp * kTeamQueries + query]);
        const float finite = maximum == -INFINITY ? 0 : maximum;  // nothing seen yet
        factors[r] = ptx::exp2_approximate((state.maximum[r] - finite) * kLog2E);
        state.maximum[r] = maximum;
        const float offset = kWeightExponent - finite * kLog2E;
        const unsigned first = warp_of_team(Shape::kWarps) * Shape::kPositions;
        auto* const to = reinterpret_cast<HalfPair*>(team.weights + query * Shape::kWeightStride +
                                                     first + lane_index() % 4 * 2);
#pragma unroll
        for (unsigned n = 0; n < Shape::kPositions / 8; ++n) {
            to[4 * n] = bits_of(__floats2half2_rn(
                ptx::exp2_approximate(fmaf(scores[n][2 * r], kLog2E, offset)),
                ptx::exp2_approximate(fmaf(scores[n][2 * r + 1], kLog2E, offset))));
        }
    }
    // In long contexts maxima seldom move.
    if (__ballot_sync(kAllLanes, factors[0] != 1 || factors[1] != 1) != 0) state.scale(factors);
}

// Once all weights are told. The sum is of weights as they were rounded, as that of the values.
template <unsigned kDims>
__device__ __forceinline__ void add_values(const Team<kDims>& team, const std::uint16_t* values,
                                           TileState<Team<kDims>::kElements>& state) {
    using Shape = Team<kDims>;
    constexpr unsigned kStride = TileShape<kDims>::kStride;
    const unsigned lane = lane_index();
    const std::uint16_t* const row =
        values + lane * kStride + warp_of_team(Shape::kWarps) * Shape::kElements;
    const std::uint16_t* const weights =
        team.weights + lane % 16 * Shape::kWeightStride + lane / 16 * 8;
#pragma unroll
    for (unsigned step = 0; step < TileShape<kDims>::kTokens / 32; ++step) {
        HalfPair a[8];
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            HalfPair matrices[4];
            ptx::load_matrices(matrices, weights, (step * 32 + half * 16) * sizeof(std::uint16_t));
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                a[4 * half + i] = matrices[i];
                const __half2 pair = halves_of(matrices[i]);
                state.sum[i % 2] += __half2float(pair.x) + __half2float(pair.y);
            }
        }
#pragma unroll
        for (unsigned n = 0; n < Shape::kElements / 8; ++n) {
            HalfPair b[4];
            ptx::load_matrices_transposed(b, row,
                                          (step * 32 * kStride + n * 8) * sizeof(std::uint16_t));
            ptx::mma_16x8x16_twice(state.values[n], a, b);
        }
    }
}

// What a warp leaves: states to be merged, or results.
template <unsigned kDims>
__device__ __forceinline__ void write_state(const Attention& p, const AttentionItem& item,
                                            const TileState<Team<kDims>::kElements>& state) {
    constexpr unsigned kElements = Team<kDims>::kElements;
    const std::uint32_t length = p.kv.head_length;
    const std::uint32_t first = warp_of_team(Team<kDims>::kWarps) * kElements;
    const bool is_final = item.partial < 0;
#pragma unroll
    for (unsigned r = 0; r < 2; ++r) {
        const Query query = query_of<kDims>(p, item, r);
        if (!query.exists) continue;
        float* to =
            p.out + std::size_t{item.row + query.row_of_item} * p.out_stride + query.head * length;
        if (!is_final) {
            const std::size_t index =
                static_cast<std::size_t>(item.partial) + query.row_of_item * item.partial_stride;
            to = p.partials + (index * p.heads + query.head) * (length + 2);
            if (first == 0 && lane_index() % 4 == 0) {
                to[0] = state.maximum[r];
                to[1] = state.sum[r];
            }
            to += 2;
        }
        const float inverse = 1.0F / state.sum[r];
#pragma unroll
        for (unsigned n = 0; n < kElements / 8; ++n) {
            const std::uint32_t d = first + n * 8 + lane_index() % 4 * 2;
            if (d >= length) continue;
            const float lower = state.values[n][2 * r], upper = state.values[n][2 * r + 1];
            to[d] = is_final ? final_value(lower, inverse) : lower;
            to[d + 1] = is_final ? final_value(upper, inverse) : upper;
        }
    }
}

template <KvForm kForm, unsigned kDims>
__global__ void __launch_bounds__(kWarpsMax* kWarpLanes, kDims <= 64 ? 2 : 1)
    half_attention_kernel(const Attention p) {
    using Tiles = KvTiles<kForm, kDims>;
    constexpr std::uint32_t kTokens = TileShape<kDims>::kTokens;
    constexpr std::uint32_t kTilesOfSplit = kSplitTokens / kTokens;
    const AttentionItem item = p.items[blockIdx.x];
    if (item.split_begin == item.split_end) return;

    // The warp's queries
    const std::uint32_t team_index = warp_index() / Team<kDims>::kWarps;
    const bool busy = team_index * kTeamQueries < item.row_count * (p.heads / p.kv.kv_heads);
    const Team<kDims> team(shared_memory<std::byte>() + Tiles::kSharedBytes +
                           team_index * Team<kDims>::kBytes);
    Queries<kDims> queries;
    load_queries<kDims>(p, item, queries);

    // The block's tiles
    const TileSource source{item.place.slot, blockIdx.y,
                            seen_by_rows(item.place.position, item.row_count, p.window, p.sinks)};
    const SeenPositions& seen = source.seen;
    const std::uint32_t last_row = item.place.position + item.row_count - 1;
    const std::uint32_t seen_by_last = seen_positions(last_row, p.window, p.sinks).window_begin;
    const std::uint32_t covered = item.split_end * kSplitTokens;
    const std::uint32_t end = covered < seen.end ? covered : seen.end;
    const std::uint32_t part = warp_of_team(Team<kDims>::kWarps) * Team<kDims>::kPositions;
    Tiles tiles(p.kv, source);

    TileState<Team<kDims>::kElements> total, state;
    std::uint32_t tile = seen.next_block(item.split_begin * kTilesOfSplit, kTokens);
    tiles.start_keys(tile);
    while (tile * kTokens < end) {
        const std::uint32_t first = tile * kTokens;
        const std::uint32_t next = seen.next_block(tile + 1, kTokens);

        // Scores
        const std::uint16_t* const keys = tiles.keys(tile) + part * TileShape<kDims>::kStride;
        tiles.start_values(tile);
        Scores<kDims> scores = {};
        if (busy) {
            score_tile<kDims>(queries, keys, scores);
            if (p.q_sinks != nullptr && first + part < p.sinks)
                score_sinks<kDims>(p, item, first + part, keys, scores);
            if (first < seen_by_last || first + kTokens > item.place.position + 1)
                hide_unseen<kDims>(p, item, first + part, scores);
            tell_maxima(scores, team);
        }
        __syncthreads();

        // Weights
        if (busy) weigh(scores, team, state);

        // Values
        const std::uint16_t* const values = tiles.values(tile);
        if (next * kTokens < end) tiles.start_keys(next);
        if (busy) add_values(team, values, state);

        // A split's end
        if (next * kTokens >= end || next / kTilesOfSplit != tile / kTilesOfSplit) {
            state.add_lanes();
            total.merge(state);  // of one split, a state stays as it is
            state = {};
        }
        tile = next;
    }
    write_state<kDims>(p, item, total);
}

template <KvForm kForm, unsigned kDims>
void launch_dims(const Attention& p, cudaStream_t stream) {
    const auto launch_items = [&](const Attention& items, std::uint32_t query_count) {
        if (items.item_count == 0) return;
        const std::uint32_t teams = query_count / kTeamQueries;
        launch(half_attention_kernel<kForm, kDims>, {items.item_count, p.kv.kv_heads},
               teams * Team<kDims>::kWarps * kWarpLanes,
               KvTiles<kForm, kDims>::kSharedBytes + teams * Team<kDims>::kBytes, stream, items);
    };
    Attention wide = p;
    wide.items = p.wide_items;
    wide.item_count = p.wide_count;
    launch_items(wide, wide_queries(p.kv.head_length));
    launch_items(p, narrow_queries(p.heads / p.kv.kv_heads));
}

template <KvForm kForm>
void launch_form(const Attention& p, cudaStream_t stream) {
    if (p.kv.head_length <= 32) return launch_dims<kForm, 32>(p, stream);
    if (p.kv.head_length <= 64) return launch_dims<kForm, 64>(p, stream);
    if (p.kv.head_length <= 128) return launch_dims<kForm, 128>(p, stream);
    launch_dims<kForm, 256>(p, stream);
}

}  // namespace

void half_attention(const Attention& p, cudaStream_t stream) {
    for_kv_form(p.kv.form, [&]<KvForm kForm>() { launch_form<kForm>(p, stream); });
}

}  // namespace troupe::gpu
