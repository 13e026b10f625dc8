// A warp takes 16 weight rows and multiplies them by 8, 32 or 64 rows of activations, chunk by
// chunk of 128 columns. Lane 4 g + t holds columns 32 t .. 32 t + 31 of the rows g and g + 8: which
// column of a chunk is which of a product does not matter, as long as weights and activations
// agree, and so both come in loads of 16 bytes, without ldmatrix and without any weight in shared
// memory.
//
// Few rows: the warps of a block take the eight parts of the columns, of the same 16 weight rows,
// and add them up at the end; weights stream past once, activations come from the cache. Many rows:
// each warp has 16 weight rows of its own and takes the parts one after another; activations wait
// in shared memory, two chunks in turn, for all eight. Either way the sum is the same.
#include "gpu/kernels/half_matmul.hpp"
#include "gpu/kernels/half_products.cuh"
#include "gpu/ptx.cuh"

namespace troupe::gpu {
namespace {

constexpr unsigned kWarps = kColumnParts;
constexpr unsigned kThreads = kWarps * kWarpLanes;
constexpr unsigned kWideTiles = 8;

template <unsigned kTiles>
using Sums = float[kTiles][kSumsOfTile];

// activations(tile, eighth): the lane's 16 bytes, of row g of the tile, columns
// 32 t + 8 eighth .. + 7 of the chunk.
template <WeightType kType, unsigned kTiles, class Activations>
__device__ __forceinline__ void add_chunk(const ChunkWeights<kType>& weights,
                                          const Activations& activations, Sums<kTiles>& sums) {
#pragma unroll
    for (unsigned eighth = 0; eighth < kGroupColumns / 8; ++eighth) {
        HalfPair lower[4];
        HalfPair upper[4];
        HalfWeights<kType>::expand(weights.lower, eighth, lower);
        HalfWeights<kType>::expand(weights.upper, eighth, upper);
#pragma unroll
        for (unsigned tile = 0; tile < kTiles; ++tile) {
            const uint4 x = activations(tile, eighth);
            ptx::mma_16x8x16_twice(
                sums[tile],
                {lower[0], upper[0], lower[1], upper[1], lower[2], upper[2], lower[3], upper[3]},
                {x.x, x.y, x.z, x.w});
        }
    }
}

template <WeightType kType, unsigned kTiles>
__global__ void __launch_bounds__(kThreads, kTiles == 1 ? 2 : 1) narrow_kernel(const HalfMatmul p) {
    constexpr unsigned kSums = kTiles * kSumsOfTile * kWarpLanes;  // of a warp
    float* const parts = shared_memory<float>();                   // [warps][kSums]
    const std::uint32_t first_row = blockIdx.x * kTiles * kTileRows;
    const std::uint32_t first_output = blockIdx.y * kRowsOfWarp;
    const std::uint32_t begin = part_begin(chunks_of(p), warp_index());
    const std::uint32_t end = part_begin(chunks_of(p), warp_index() + 1);
    const std::uint32_t last_row = p.rows - 1;
    Sums<kTiles> sums = {};
    ChunkWeights<kType> weights;
    if (begin < end) weights.load(p.w, first_output, begin);
    for (std::uint32_t chunk = begin; chunk < end; ++chunk) {
        ChunkWeights<kType> next = weights;
        if (chunk + 1 < end) next.load(p.w, first_output, chunk + 1);
        add_chunk<kType, kTiles>(
            weights,
            [&](unsigned tile, unsigned eighth) {
                const std::uint32_t row = first_row + tile * kTileRows + lane_index() / 4;
                const std::size_t at = std::size_t{row < last_row ? row : last_row} * p.x.stride +
                                       chunk * kChunkColumns + lane_index() % 4 * kGroupColumns +
                                       eighth * 8;
                return *reinterpret_cast<const uint4*>(p.x.values + at);
            },
            sums);
        weights = next;
    }
#pragma unroll
    for (unsigned tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (unsigned i = 0; i < kSumsOfTile; ++i)
            parts[warp_index() * kSums + (tile * kSumsOfTile + i) * kWarpLanes + lane_index()] =
                sums[tile][i];
    }
    __syncthreads();
    for (unsigned at = threadIdx.x; at < kSums; at += kThreads) {
        float total = 0;
        for (unsigned part = 0; part < kColumnParts; ++part)
            total += parts[part * kSums + at];
        const unsigned lane = at % kWarpLanes;
        const unsigned i = at / kWarpLanes % kSumsOfTile;
        const unsigned tile = at / kWarpLanes / kSumsOfTile;
        write_sum(p, first_row + tile * kTileRows + row_of(lane, i),
                  first_output + output_of(lane, i), total);
    }
}

// A chunk of 64 rows in shared memory. The 16 bytes of columns 8 (4 t + e) .. + 7 lie at 4 e + t,
// and rows 64 bytes more than 256 apart, so that what eight lanes read at once touches every bank
// once.
constexpr unsigned kStagedRow = (kChunkColumns + 32) * sizeof(std::uint16_t);  // bytes
constexpr unsigned kStagedChunk = kWideTiles * kTileRows * kStagedRow;
constexpr unsigned kPiecesOfRow = kChunkColumns / 8;

__device__ __forceinline__ void stage_chunk(const HalfMatmul& p, std::uint32_t first_row,
                                            std::uint32_t chunk, std::byte* staged) {
    const std::uint32_t last_row = p.rows - 1;
    for (unsigned i = threadIdx.x; i < kWideTiles * kTileRows * kPiecesOfRow; i += kThreads) {
        const unsigned row = i / kPiecesOfRow;
        const unsigned piece = i % kPiecesOfRow;
        const std::uint32_t from = first_row + row < last_row ? first_row + row : last_row;
        ptx::copy_async(
            staged + row * kStagedRow + (piece % 4 * 4 + piece / 4) * 16,
            p.x.values + std::size_t{from} * p.x.stride + chunk * kChunkColumns + piece * 8);
    }
    ptx::commit_copies();
}

template <WeightType kType>
__global__ void __launch_bounds__(kThreads) wide_kernel(const HalfMatmul p) {
    std::byte* const staged = shared_memory<std::byte>();  // two chunks
    const std::uint32_t first_row = blockIdx.x * kWideTiles * kTileRows;
    const std::uint32_t first_output = (blockIdx.y * kWarps + warp_index()) * kRowsOfWarp;
    const std::uint32_t chunks = chunks_of(p);
    Sums<kWideTiles> sums = {};
    Sums<kWideTiles> totals = {};
    ChunkWeights<kType> weights;
    weights.load(p.w, first_output, 0);
    stage_chunk(p, first_row, 0, staged);
    std::uint32_t part = 0;
    for (std::uint32_t chunk = 0; chunk < chunks; ++chunk) {
        ChunkWeights<kType> next = weights;
        const bool more = chunk + 1 < chunks;
        if (more) next.load(p.w, first_output, chunk + 1);
        if (more) stage_chunk(p, first_row, chunk + 1, staged + (chunk + 1) % 2 * kStagedChunk);
        if (more) {
            ptx::wait_for_copies<1>();
        } else {
            ptx::wait_for_copies<0>();
        }
        __syncthreads();
        const std::byte* const own = staged + chunk % 2 * kStagedChunk +
                                     lane_index() / 4 * kStagedRow + lane_index() % 4 * 16;
        add_chunk<kType, kWideTiles>(
            weights,
            [own](unsigned tile, unsigned eighth) {
                const std::byte* const at = own + tile * kTileRows * kStagedRow + eighth * 64;
                return *reinterpret_cast<const uint4*>(at);
            },
            sums);
        for (; part < kColumnParts && part_begin(chunks, part + 1) <= chunk + 1; ++part) {
#pragma unroll
            for (unsigned i = 0; i < kWideTiles * kSumsOfTile; ++i) {
                totals[i / kSumsOfTile][i % kSumsOfTile] += sums[i / kSumsOfTile][i % kSumsOfTile];
                sums[i / kSumsOfTile][i % kSumsOfTile] = 0;
            }
        }
        weights = next;
        __syncthreads();
    }
#pragma unroll
    for (unsigned tile = 0; tile < kWideTiles; ++tile) {
#pragma unroll
        for (unsigned i = 0; i < kSumsOfTile; ++i)
            write_sum(p, first_row + tile * kTileRows + row_of(lane_index(), i),
                      first_output + output_of(lane_index(), i), totals[tile][i]);
    }
}

template <WeightType kType, unsigned kTiles>
void launch_narrow(const HalfMatmul& p, cudaStream_t stream) {
    constexpr unsigned kRows = kTiles * kTileRows;
    const dim3 grid{(p.rows + kRows - 1) / kRows, (p.w.rows + kRowsOfWarp - 1) / kRowsOfWarp};
    launch(narrow_kernel<kType, kTiles>, grid, kThreads,
           kWarps * kTiles * kSumsOfTile * kWarpLanes * sizeof(float), stream, p);
}

template <WeightType kType>
void launch_type(const HalfMatmul& p, cudaStream_t stream) {
    if (p.rows <= kTileRows) return launch_narrow<kType, 1>(p, stream);
    if (p.rows <= kNarrowRowsMax) return launch_narrow<kType, 4>(p, stream);
    constexpr unsigned kRows = kWideTiles * kTileRows;
    constexpr unsigned kOutputs = kWarps * kRowsOfWarp;
    const dim3 grid{(p.rows + kRows - 1) / kRows, (p.w.rows + kOutputs - 1) / kOutputs};
    launch(wide_kernel<kType>, grid, kThreads, 2 * kStagedChunk, stream, p);
}

}  // namespace

void half_matmul(const HalfMatmul& p, cudaStream_t stream) {
    if (p.x.order == HalfOrder::tiles) return warpgroup_matmul(p, stream);
    for_half_weight_type(p.w.type, [&]<WeightType kType>() { launch_type<kType>(p, stream); });
}

}  // namespace troupe::gpu
