// Products of many rows on cards of compute capability 9.0. A warpgroup takes 64 weight rows, 16 a
// warp, and multiplies them by 128 rows of activations. Weights go from memory to registers
// and are expanded to halves there, as for all products; activations are read by tensor units from
// shared memory, where they lie as in device memory, so that one copy of 16 KiB brings half a chunk
// of 128 rows. While products of one half of a chunk go on, the other half's weights are expanded.
//
// Two warpgroups share the activations; a third has one thread that starts copies, up to six halves
// ahead, when all warps have left what lay there.
#include "gpu/kernels/half_matmul.hpp"
#include "gpu/kernels/half_products.cuh"
#include "gpu/ptx_sm90.cuh"

namespace troupe::gpu {
namespace {

constexpr unsigned kWarps = 8;  // that multiply
constexpr unsigned kThreads = kWarps * kWarpLanes;
constexpr unsigned kBlockThreads = kThreads + 128;  // with the warpgroup that copies
constexpr unsigned kOutputsOfBlock = kWarps * kRowsOfWarp;
constexpr unsigned kGroupBytes = kHalfTileRows * 16;                   // eight columns of a tile
constexpr unsigned kStageBytes = kChunkColumns / 2 / 8 * kGroupBytes;  // half a chunk
constexpr unsigned kStages = 6;
constexpr unsigned kSharedBytes = kStages * kStageBytes + 2 * kStages * sizeof(ptx::ArrivalBarrier);

#if defined(TROUPE_SM90)

constexpr unsigned kSteps = 4;  // products of half a chunk, one after another
constexpr unsigned kSides = 2;  // of as many rows of activations each, with the same weights
constexpr unsigned kSideRows = kHalfTileRows / kSides;
constexpr unsigned kSums = kSideRows / 2;  // of a lane, a side

// Half a chunk of 16 weight rows, as a lane has it: of types of 16 bits it is loaded by itself, of
// smaller ones both halves are.
template <WeightType kType>
struct HalfChunkWeights {
    static constexpr bool kByHalves = HalfWeights<kType>::kWords == 4;
    static constexpr unsigned kLoaded = kByHalves ? 2 : HalfWeights<kType>::kWords;
    RawWeights<kLoaded> lower, upper;  // rows g and g + 8

    __device__ __forceinline__ void load(const WeightMatrix& w, std::uint32_t first_row,
                                         std::uint32_t chunk, unsigned half) {
        if constexpr (kByHalves) {
            const std::uint32_t row = first_row + lane_index() / 4;
            const std::uint32_t last = w.rows - 1;
            const std::uint32_t column = chunk * kChunkColumns + lane_index() % 4 * kGroupColumns;
            load_words(w, row < last ? row : last, column, half, lower);
            load_words(w, row + 8 < last ? row + 8 : last, column, half, upper);
        } else {
            ChunkWeights<kType> both;
            both.load(w, first_row, chunk);
            lower = both.lower;
            upper = both.upper;
        }
    }
    // The left operands of the half's products.
    __device__ __forceinline__ void expand(unsigned half,
                                           std::uint32_t (&operands)[kSteps][4]) const {
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            const unsigned eighth = kByHalves ? i : 2 * half + i;
            HalfPair low[4];
            HalfPair high[4];
            HalfWeights<kType>::expand(lower, eighth, low);
            HalfWeights<kType>::expand(upper, eighth, high);
#pragma unroll
            for (unsigned j = 0; j < 4; ++j) {
                operands[2 * i + j / 2][j % 2 * 2] = low[j];
                operands[2 * i + j / 2][j % 2 * 2 + 1] = high[j];
            }
        }
    }

 private:
    __device__ __forceinline__ static void load_words(const WeightMatrix& w, std::uint32_t row,
                                                      std::uint32_t column, unsigned half,
                                                      RawWeights<kLoaded>& to) {
        to = {};
        if (column >= w.columns) return;
        const std::size_t load = (std::size_t{row} * w.columns + column) / kLoadColumns + 2 * half;
        const uint4* const at = static_cast<const uint4*>(w.data) + load;
        to.words[0] = at[0];
        to.words[1] = at[1];
    }
};

// 128 weight rows, and as many rows of activations.
template <WeightType kType>
class WarpgroupBlock {
 public:
    __device__ __forceinline__ explicit WarpgroupBlock(const HalfMatmul& p)
        : p_(p),
          shared_(shared_memory<std::byte>()),
          barriers_(reinterpret_cast<ptx::ArrivalBarrier*>(shared_ + kStages * kStageBytes)),
          tile_(blockIdx.x),
          first_output_(blockIdx.y * kOutputsOfBlock + warp_index() * kRowsOfWarp),
          chunks_(chunks_of(p)) {}

    __device__ __forceinline__ void run() {
        if (threadIdx.x == 0) {
            for (unsigned stage = 0; stage < kStages; ++stage) {
                ptx::init_barrier(filled(stage), 1);
                ptx::init_barrier(left(stage), kWarps);
            }
            ptx::show_barriers();
        }
        __syncthreads();
        if (warp_index() >= kWarps) {
            ptx::leave_registers();
            if (threadIdx.x == kThreads) copy_all();
        } else {
            ptx::take_registers();
            multiply_all();
        }
    }

 private:
    __device__ __forceinline__ ptx::ArrivalBarrier* filled(unsigned stage) {
        return barriers_ + stage;
    }
    __device__ __forceinline__ ptx::ArrivalBarrier* left(unsigned stage) {
        return barriers_ + kStages + stage;
    }

    __device__ __forceinline__ void copy_all() {
        const std::byte* const values = reinterpret_cast<const std::byte*>(p_.x.values) +
                                        std::size_t{tile_} * 2 * chunks_ * kStageBytes;
        for (std::uint32_t half = 0; half < 2 * chunks_; ++half) {
            const unsigned stage = half % kStages;
            const std::uint32_t turn = half / kStages;
            if (turn > 0) ptx::wait_for_phase(left(stage), (turn - 1) % 2);
            ptx::arrive_expecting(filled(stage), kStageBytes);
            ptx::copy_bytes_async(shared_ + stage * kStageBytes,
                                  values + std::size_t{half} * kStageBytes, kStageBytes,
                                  filled(stage));
        }
    }

    __device__ __forceinline__ void multiply_all() {
        float totals[kSides][kSums] = {};
        next_.load(p_.w, first_output_, 0, 0);
        for (std::uint32_t part = 0; part < kColumnParts; ++part) {
            const std::uint32_t begin = part_begin(chunks_, part);
            const std::uint32_t end = part_begin(chunks_, part + 1);
            if (begin == end) continue;
            for (std::uint32_t chunk = begin; chunk < end; ++chunk) {
                multiply_half<0>(chunk, chunk > begin);
                multiply_half<1>(chunk, true);
            }
            add_part(totals);
        }
#pragma unroll
        for (unsigned i = 0; i < kSides * kSums; ++i) {
            const unsigned of_product = i % kSumsOfTile;
            const std::uint32_t row = tile_ * kHalfTileRows + i / kSumsOfTile * kTileRows +
                                      row_of(lane_index(), of_product);
            write_sum(p_, row, first_output_ + output_of(lane_index(), of_product),
                      totals[i / kSums][i % kSums]);
        }
    }

    template <unsigned kHalf>
    __device__ __forceinline__ void multiply_half(std::uint32_t chunk, bool accumulate) {
        const std::uint32_t half = 2 * chunk + kHalf;
        const unsigned stage = half % kStages;
        // Until those of two halves ago are done, their operands are still being read.
        ptx::wait_for_products<1>();
        if (half >= 2 && lane_index() == 0) ptx::arrive(left((half - 2) % kStages));
        if (HalfChunkWeights<kType>::kByHalves || kHalf == 0) weights_ = next_;
        load_next<kHalf>(chunk);
        weights_.expand(kHalf, operands_[kHalf]);
        ptx::wait_for_phase(filled(stage), half / kStages % 2);
        ptx::begin_products(operands_[kHalf]);
#pragma unroll
        for (unsigned step = 0; step < kSteps; ++step) {
#pragma unroll
            for (unsigned side = 0; side < kSides; ++side) {
                const std::byte* const at =
                    shared_ + stage * kStageBytes + 2 * step * kGroupBytes + side * kSideRows * 16;
                ptx::multiply_64x64x16(sums_[side], operands_[kHalf][step],
                                       ptx::warpgroup_operand(at, kGroupBytes),
                                       accumulate || step > 0);
            }
        }
        ptx::commit_products();
    }

    template <unsigned kHalf>
    __device__ __forceinline__ void load_next(std::uint32_t chunk) {
        const std::uint32_t next = HalfChunkWeights<kType>::kByHalves ? chunk + kHalf : chunk + 1;
        const bool any = HalfChunkWeights<kType>::kByHalves || kHalf == 0;
        if (any && next < chunks_) next_.load(p_.w, first_output_, next, 1 - kHalf);
    }

    // The part's sums to those of the parts before it.
    __device__ __forceinline__ void add_part(float (&totals)[kSides][kSums]) {
        ptx::wait_for_products<0>();
#pragma unroll
        for (unsigned side = 0; side < kSides; ++side) {
            ptx::sums_are_there(sums_[side]);
#pragma unroll
            for (unsigned i = 0; i < kSums; ++i)
                totals[side][i] += sums_[side][i];
        }
    }

    const HalfMatmul& p_;
    std::byte* const shared_;
    ptx::ArrivalBarrier* const barriers_;  // filled [stages], left [stages]
    const std::uint32_t tile_, first_output_, chunks_;
    HalfChunkWeights<kType> weights_, next_;
    std::uint32_t operands_[2][kSteps][4];  // of the halves of a chunk
    ptx::WarpgroupSums sums_[kSides];       // of a part
};

#endif

template <WeightType kType>
__global__ void __launch_bounds__(kBlockThreads, 1) warpgroup_kernel(const HalfMatmul p) {
#if defined(TROUPE_SM90)
    WarpgroupBlock<kType>(p).run();
#else
    (void)p;  // nothing is written, which warpgroups_agree() sees
#endif
}

}  // namespace

void warpgroup_matmul(const HalfMatmul& p, cudaStream_t stream) {
    const dim3 grid{(p.rows + kHalfTileRows - 1) / kHalfTileRows,
                    (p.w.rows + kOutputsOfBlock - 1) / kOutputsOfBlock};
    for_half_weight_type(p.w.type, [&]<WeightType kType>() {
        launch(warpgroup_kernel<kType>, grid, kBlockThreads, kSharedBytes, stream, p);
    });
}

}  // namespace troupe::gpu
