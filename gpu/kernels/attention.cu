// In float32: a warp takes a row and a head; the warps of a block take the query heads that share a
// key head, so that its keys and values come from the cache for all but the first. Online softmax
// (Milakov and Gimelshein, 2018) in tiles of 32 positions: for the scores a lane is a position, for
// the sums of values it is an element.
#include "gpu/kernels/attention.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gpu/device.cuh"
#include "gpu/kernels/attention_state.cuh"
#include "gpu/kernels/kv_forms.cuh"
#include "model/half.hpp"

namespace troupe::gpu {
namespace {

// Element d of a token's vector in a block of keys or values.
double number_truth(const KvPages& kv, const std::byte* block, std::uint32_t position,
                    std::size_t d) {
    const std::uint32_t token = position % kPageTokens;
    const std::size_t at = token * kv.head_length + d;
    if (kv.form == KvForm::f16)
        return model::half_to_float(reinterpret_cast<const std::uint16_t*>(block)[at]);
    const auto* const numbers = reinterpret_cast<const std::int8_t*>(block);
    return double{reinterpret_cast<const float*>(block)[token]} *
           numbers[kPageTokens * sizeof(float) + at];
}

void row_truth(const Attention& p, std::size_t row, RowPlace place, std::uint32_t head) {
    const std::size_t length = p.kv.head_length;
    const std::uint32_t kv_head = head / (p.heads / p.kv.kv_heads);
    std::vector<double> values(length, 0.0);
    double sum = 0;
    double largest = -INFINITY;
    for (std::uint32_t t = 0; t <= place.position; ++t) {
        const bool sink = t < p.sinks;
        if (p.window > 0 && !sink && t + p.window <= place.position) continue;
        const std::size_t at = p.kv.block_offset(place.slot, t, kv_head);
        const float* const q = sink && p.q_sinks != nullptr
                                   ? p.q_sinks + (row * p.heads + head) * length
                                   : p.q + row * p.q_stride + head * length;
        double score = 0;
        for (std::size_t d = 0; d < length; ++d)
            score += double{q[d]} * number_truth(p.kv, p.kv.keys + at, t, d);
        score *= p.scale;
        const double maximum = std::max(largest, score);
        const double factor = std::exp(largest - maximum);
        const double weight = std::exp(score - maximum);
        largest = maximum;
        sum = sum * factor + weight;
        for (std::size_t d = 0; d < length; ++d)
            values[d] = values[d] * factor + weight * number_truth(p.kv, p.kv.values + at, t, d);
    }
    float* const out = p.out + row * p.out_stride + head * length;
    for (std::size_t d = 0; d < length; ++d)
        out[d] = static_cast<float>(values[d] / sum);
}

}  // namespace

void attention_truth(const Attention& p) {
    for (std::size_t i = 0; i < p.item_count; ++i) {
        const AttentionItem& item = p.items[i];
        for (std::uint32_t row = 0; row < item.row_count * p.heads; ++row) {
            const RowPlace place{item.place.slot, item.place.position + row / p.heads};
            row_truth(p, item.row + row / p.heads, place, row % p.heads);
        }
    }
}

namespace {

// Shared memory of a warp: its query, as it looks at sinks, too, and the weights of a tile.
__host__ __device__ constexpr std::size_t warp_floats(std::uint32_t head_length, bool sinks) {
    return (sinks ? 2 : 1) * head_length + kTileTokens;
}

// A row's work, in one head.
struct HeadRow {
    SeenPositions seen;
    std::uint32_t slot, kv_head;
    const float* query;        // in shared memory, as the next two
    const float* sinks_query;  // where there are sinks
    float* weights;
};

template <KvForm kForm>
__device__ __forceinline__ typename KvNumbers<kForm>::Vector vector_at(const KvPages& kv,
                                                                       const std::byte* blocks,
                                                                       const HeadRow& row,
                                                                       std::uint32_t position) {
    return {blocks + kv.block_offset(row.slot, position, row.kv_head), position % kPageTokens,
            kv.head_length};
}

// The scaled score of this lane's position; -infinity for one that the row does not see.
template <KvForm kForm>
__device__ __forceinline__ float score_of(const Attention& p, const HeadRow& row,
                                          std::uint32_t position) {
    if (!row.seen.contains(position)) return -INFINITY;
    const auto key = vector_at<kForm>(p.kv, p.kv.keys, row, position);
    const float* const query = position < p.sinks ? row.sinks_query : row.query;
    float score = 0;
    for (std::uint32_t d = 0; d < p.kv.head_length; ++d)
        score = fmaf(query[d], key[d], score);
    return score * p.scale;
}

// Adds what the row sees of the positions [tile, tile + 32) to the state: not nothing.
template <KvForm kForm, unsigned kDims>
__device__ void add_tile(const Attention& p, const HeadRow& row, std::uint32_t tile,
                         AttentionState<kDims>& state) {
    const float score = score_of<kForm>(p, row, tile + lane_index());
    const float maximum = fmaxf(state.maximum, warp_max(score));
    const float weight = model::math::exp(score - maximum);
    state.rescale(maximum);
    state.sum += warp_sum(weight);
    row.weights[lane_index()] = weight;
    __syncwarp();
    for (std::uint32_t i = 0; i < kTileTokens; ++i) {
        // A weight of zero would not do: nobody may have written there.
        if (!row.seen.contains(tile + i)) continue;
        const auto value = vector_at<kForm>(p.kv, p.kv.values, row, tile + i);
#pragma unroll
        for (unsigned j = 0; j < kDims; ++j) {
            const std::uint32_t d = j * kWarpLanes + lane_index();
            if (d < p.kv.head_length)
                state.values[j] = fmaf(row.weights[i], value[d], state.values[j]);
        }
    }
    __syncwarp();
}

template <unsigned kDims>
__device__ void write_result(const Attention& p, std::uint32_t row, std::uint32_t head,
                             const AttentionState<kDims>& state) {
    float* const out = p.out + std::size_t{row} * p.out_stride + head * p.kv.head_length;
    const float inverse = 1.0F / state.sum;
    for (unsigned j = 0; j < kDims; ++j) {
        const std::uint32_t d = j * kWarpLanes + lane_index();
        if (d < p.kv.head_length) out[d] = final_value(state.values[j], inverse);
    }
}

// This warp's head of the item's row, with its queries in shared memory.
__device__ HeadRow load_row(const Attention& p, const AttentionItem& item, std::uint32_t kv_head,
                            std::uint32_t head) {
    const std::uint32_t length = p.kv.head_length;
    const bool sinks = p.q_sinks != nullptr;
    float* const query = shared_memory<float>() + warp_index() * warp_floats(length, sinks);
    float* const sinks_query = sinks ? query + length : query;
    for (std::uint32_t d = lane_index(); d < length; d += kWarpLanes) {
        query[d] = p.q[std::size_t{item.row} * p.q_stride + head * length + d];
        if (sinks) {
            sinks_query[d] = p.q_sinks[(std::size_t{item.row} * p.heads + head) * length + d];
        }
    }
    __syncwarp();
    return {seen_positions(item.place.position, p.window, p.sinks),
            item.place.slot,
            kv_head,
            query,
            sinks_query,
            sinks_query + length};
}

template <KvForm kForm, unsigned kDims>
__global__ void attention_kernel(const Attention p) {
    const AttentionItem item = p.items[blockIdx.x];
    if (item.split_begin == item.split_end) return;
    const std::uint32_t kv_head = blockIdx.y;
    const std::uint32_t head = kv_head * (p.heads / p.kv.kv_heads) + warp_index();
    const HeadRow row = load_row(p, item, kv_head, head);
    constexpr std::uint32_t kSplitTiles = kSplitTokens / kTileTokens;
    AttentionState<kDims> total;
    for (std::uint32_t split = row.seen.next_block(item.split_begin, kSplitTokens);
         split < item.split_end; split = row.seen.next_block(split + 1, kSplitTokens)) {
        AttentionState<kDims> state;
        const std::uint32_t tiles = (row.seen.end + kTileTokens - 1) / kTileTokens;
        const std::uint32_t split_end = (split + 1) * kSplitTiles;
        const std::uint32_t end = tiles < split_end ? tiles : split_end;
        for (std::uint32_t tile = row.seen.next_block(split * kSplitTiles, kTileTokens); tile < end;
             tile = row.seen.next_block(tile + 1, kTileTokens)) {
            add_tile<kForm>(p, row, tile * kTileTokens, state);
        }
        if (item.partial >= 0) {
            const std::size_t index = static_cast<std::size_t>(item.partial) * p.heads + head;
            state.store(p.partials + index * (p.kv.head_length + 2), p.kv.head_length);
            return;
        }
        total.merge(state);
    }
    write_result(p, item.row, head, total);
}

template <unsigned kDims>
__global__ void attention_merge_kernel(const Attention p) {
    const AttentionMerge merge = p.merges[blockIdx.x];
    if (merge.partial_count == 0) return;
    const std::uint32_t head = blockIdx.y;
    const std::uint32_t length = p.kv.head_length;
    AttentionState<kDims> total;
    for (std::uint32_t i = 0; i < merge.partial_count; ++i) {
        const std::size_t index = std::size_t{merge.partial_begin + i} * p.heads + head;
        AttentionState<kDims> state;
        state.load(p.partials + index * (length + 2), length);
        total.merge(state);
    }
    write_result(p, merge.row, head, total);
}

template <KvForm kForm, unsigned kDims>
void launch_dims(const Attention& p, cudaStream_t stream) {
    const std::uint32_t warps = p.heads / p.kv.kv_heads;
    launch(attention_kernel<kForm, kDims>, {p.item_count, p.kv.kv_heads}, warps * kWarpLanes,
           warps * warp_floats(p.kv.head_length, p.q_sinks != nullptr) * sizeof(float), stream, p);
}

// Calls visit.template operator()<kDims>() for so many elements of a head in a lane.
template <class Visit>
void for_dims(std::uint32_t head_length, Visit visit) {
    const std::uint32_t dims = (head_length + kWarpLanes - 1) / kWarpLanes;
    if (dims <= 1) return visit.template operator()<1>();
    if (dims <= 2) return visit.template operator()<2>();
    if (dims <= 4) return visit.template operator()<4>();
    visit.template operator()<8>();
}

}  // namespace

void attention(const Attention& p, cudaStream_t stream) {
    if (p.in_halves) {
        half_attention(p, stream);
    } else {
        for_kv_form(p.kv.form, [&]<KvForm kForm>() {
            for_dims(p.kv.head_length,
                     [&]<unsigned kDims>() { launch_dims<kForm, kDims>(p, stream); });
        });
    }
    if (p.merge_count == 0) return;
    for_dims(p.kv.head_length, [&]<unsigned kDims>() {
        launch(attention_merge_kernel<kDims>, {p.merge_count, p.heads}, kWarpLanes, 0, stream, p);
    });
}

}  // namespace troupe::gpu
