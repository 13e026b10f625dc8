// A warp takes a row and a head; the warps of a block take the query heads that share a key head,
// so that its keys and values come from the cache for all but the first. Online softmax (Milakov
// and Gimelshein, 2018) in tiles of 32 positions: for the scores a lane is a position, for the sums
// of values it is an element.
#include "gpu/kernels/attention.hpp"

#include <cmath>
#include <vector>

#include "gpu/device.cuh"
#include "gpu/kernels/attention_state.cuh"
#include "model/half.hpp"

namespace troupe::gpu {
namespace {

__host__ __device__ __forceinline__ std::size_t kv_offset(const KvPages& kv, std::uint32_t slot,
                                                          std::uint32_t position,
                                                          std::uint32_t head) {
    const std::size_t page =
        kv.page_table[std::size_t{slot} * kv.pages_per_slot + position / kPageTokens];
    return ((page * kv.kv_heads + head) * kPageTokens + position % kPageTokens) * kv.head_length;
}

}  // namespace

void attention_truth(const Attention& p) {
    const std::size_t length = p.kv.head_length;
    for (std::size_t i = 0; i < p.item_count; ++i) {
        const AttentionItem& item = p.items[i];
        for (std::uint32_t head = 0; head < p.heads; ++head) {
            const std::uint32_t kv_head = head / (p.heads / p.kv.kv_heads);
            const float* const q = p.q + std::size_t{item.row} * p.q_stride + head * length;
            std::vector<double> values(length, 0.0);
            double sum = 0;
            for (std::uint32_t t = 0; t <= item.place.position; ++t) {
                const std::size_t at = kv_offset(p.kv, item.place.slot, t, kv_head);
                double score = 0;
                for (std::size_t d = 0; d < length; ++d)
                    score += double{q[d]} * model::half_to_float(p.kv.keys[at + d]);
                const double weight = std::exp(score * p.scale);
                sum += weight;
                for (std::size_t d = 0; d < length; ++d)
                    values[d] += weight * model::half_to_float(p.kv.values[at + d]);
            }
            float* const out = p.out + std::size_t{item.row} * p.out_stride + head * length;
            for (std::size_t d = 0; d < length; ++d)
                out[d] = static_cast<float>(values[d] / sum);
        }
    }
}

namespace {

// Shared memory of a warp: its query, the weights of a tile.
__host__ __device__ constexpr std::size_t warp_floats(std::uint32_t head_length) {
    return head_length + kTileTokens;
}

__device__ __forceinline__ float load_half(const std::uint16_t* at) {
    return __half2float(__ushort_as_half(*at));
}

// The scaled score of this lane's position; -infinity for one that the row does not see.
__device__ __forceinline__ float score_of(const Attention& p, const AttentionItem& item,
                                          std::uint32_t kv_head, std::uint32_t position,
                                          const float* query) {
    if (position > item.place.position) return -INFINITY;
    const std::uint16_t* const key =
        p.kv.keys + kv_offset(p.kv, item.place.slot, position, kv_head);
    float score = 0;
    for (std::uint32_t d = 0; d < p.kv.head_length; ++d)
        score = fmaf(query[d], load_half(key + d), score);
    return score * p.scale;
}

// Adds the positions [tile, tile + 32) to the state, as far as the row sees them.
template <unsigned kDims>
__device__ void add_tile(const Attention& p, const AttentionItem& item, std::uint32_t kv_head,
                         std::uint32_t tile, const float* query, float* weights,
                         AttentionState<kDims>& state) {
    const float score = score_of(p, item, kv_head, tile + lane_index(), query);
    const float maximum = fmaxf(state.maximum, warp_max(score));
    const float weight = model::math::exp(score - maximum);
    state.rescale(maximum);
    state.sum += warp_sum(weight);
    weights[lane_index()] = weight;
    __syncwarp();
    const std::uint32_t seen = item.place.position + 1 - tile;
    const std::uint32_t count = seen < kTileTokens ? seen : kTileTokens;
    for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint16_t* const value =
            p.kv.values + kv_offset(p.kv, item.place.slot, tile + i, kv_head);
#pragma unroll
        for (unsigned j = 0; j < kDims; ++j) {
            const std::uint32_t d = j * kWarpLanes + lane_index();
            if (d < p.kv.head_length)
                state.values[j] = fmaf(weights[i], load_half(value + d), state.values[j]);
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
        if (d < p.kv.head_length) out[d] = state.values[j] * inverse;
    }
}

template <unsigned kDims>
__global__ void attention_kernel(const Attention p) {
    const AttentionItem item = p.items[blockIdx.x];
    const std::uint32_t length = p.kv.head_length;
    const std::uint32_t kv_head = blockIdx.y;
    const std::uint32_t head = kv_head * (p.heads / p.kv.kv_heads) + warp_index();
    float* const query = shared_memory<float>() + warp_index() * warp_floats(length);
    float* const weights = query + length;
    for (std::uint32_t d = lane_index(); d < length; d += kWarpLanes)
        query[d] = p.q[std::size_t{item.row} * p.q_stride + head * length + d];
    __syncwarp();

    AttentionState<kDims> total;
    for (std::uint32_t split = item.split_begin; split < item.split_end; ++split) {
        AttentionState<kDims> state;
        const std::uint32_t seen = item.place.position + 1;
        const std::uint32_t split_end = (split + 1) * kSplitTokens;
        const std::uint32_t end = seen < split_end ? seen : split_end;
        for (std::uint32_t tile = split * kSplitTokens; tile < end; tile += kTileTokens)
            add_tile(p, item, kv_head, tile, query, weights, state);
        if (item.partial >= 0) {
            const std::size_t index = static_cast<std::size_t>(item.partial) * p.heads + head;
            state.store(p.partials + index * (length + 2), length);
            return;
        }
        total.merge(state);
    }
    write_result(p, item.row, head, total);
}

template <unsigned kDims>
__global__ void attention_merge_kernel(const Attention p) {
    const AttentionMerge merge = p.merges[blockIdx.x];
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

template <unsigned kDims>
void launch_dims(const Attention& p, cudaStream_t stream) {
    const std::uint32_t warps = p.heads / p.kv.kv_heads;
    launch(attention_kernel<kDims>, {p.item_count, p.kv.kv_heads}, warps * kWarpLanes,
           warps * warp_floats(p.kv.head_length) * sizeof(float), stream, p);
    if (p.merge_count > 0) {
        launch(attention_merge_kernel<kDims>, {p.merge_count, p.heads}, kWarpLanes, 0, stream, p);
    }
}

}  // namespace

void attention(const Attention& p, cudaStream_t stream) {
    const std::uint32_t dims = (p.kv.head_length + kWarpLanes - 1) / kWarpLanes;
    if (dims <= 1) return launch_dims<1>(p, stream);
    if (dims <= 2) return launch_dims<2>(p, stream);
    if (dims <= 4) return launch_dims<4>(p, stream);
    launch_dims<8>(p, stream);
}

}  // namespace troupe::gpu
