// The product with float32 weights: a block takes 16 weight rows and up to 8 rows of activations,
// slice by slice of the columns. Activations wait in shared memory; a warp streams two weight rows
// past them, each weight read from memory once for 8 rows. Its truth, in the tests, is the sum in
// double over model::dequantise.
#include "gpu/kernels/matmul.hpp"
#include "gpu/kernels/weights.cuh"

namespace troupe::gpu {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarpLanes;
constexpr unsigned kWeightRows = 2;                           // of a warp
constexpr unsigned kPassColumns = kWarpLanes * kLoadColumns;  // of a warp at once
constexpr unsigned kSliceColumns = 1024;  // whose activations are in shared memory

// The slice lies as two planes, first and last four of every eight columns, so that the lanes'
// loads of four floats touch.
__device__ __forceinline__ unsigned slice_offset(unsigned row, unsigned column) {
    const unsigned plane = column / 4 % 2;
    return row * kSliceColumns + plane * (kSliceColumns / 2) + column / 8 * 4 + column % 4;
}

template <unsigned kRows>
__device__ void load_slice(const Matmul& p, std::uint32_t first_row, std::uint32_t first_column,
                           float* slice) {
    const unsigned left = p.w.columns - first_column;
    const unsigned width = left < kSliceColumns ? left : kSliceColumns;
    for (unsigned i = threadIdx.x; i < kRows * width; i += kThreads) {
        const unsigned row = i / width;
        const unsigned column = i % width;
        const bool inside = first_row + row < p.rows && first_column + column < p.columns;
        slice[slice_offset(row, column)] =
            inside ? p.x[std::size_t{first_row + row} * p.x_stride + first_column + column] : 0.0F;
    }
}

// Sums each of a lane's kRows values over the warp; lane l has the sum of value l / (32 / kRows).
// In every step a lane passes on the half of its values that it will not keep.
template <unsigned kRows>
__device__ __forceinline__ float warp_sum_rows(float (&values)[kRows]) {
    unsigned distance = kWarpLanes / 2;
#pragma unroll
    for (unsigned kept = kRows / 2; kept > 0; kept /= 2, distance /= 2) {
        const bool upper = (lane_index() & distance) != 0;
#pragma unroll
        for (unsigned i = 0; i < kept; ++i) {
            const float passed = upper ? values[i] : values[i + kept];
            const float own = upper ? values[i + kept] : values[i];
            values[i] = own + __shfl_xor_sync(kAllLanes, passed, static_cast<int>(distance));
        }
    }
    float sum = values[0];
    for (; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(kAllLanes, sum, static_cast<int>(distance));
    return sum;
}

template <unsigned kRows>
__device__ __forceinline__ void accumulate(const float (&w)[kLoadColumns], const float* slice,
                                           unsigned column, float (&sums)[kRows]) {
#pragma unroll
    for (unsigned row = 0; row < kRows; ++row) {
        const float4 low = *reinterpret_cast<const float4*>(slice + slice_offset(row, column));
        const float4 high = *reinterpret_cast<const float4*>(slice + slice_offset(row, column + 4));
        float sum = fmaf(w[0], low.x, sums[row]);
        sum = fmaf(w[1], low.y, sum);
        sum = fmaf(w[2], low.z, sum);
        sum = fmaf(w[3], low.w, sum);
        sum = fmaf(w[4], high.x, sum);
        sum = fmaf(w[5], high.y, sum);
        sum = fmaf(w[6], high.z, sum);
        sums[row] = fmaf(w[7], high.w, sum);
    }
}

template <unsigned kRows>
__global__ void __launch_bounds__(kThreads) matmul_kernel(const Matmul p) {
    float* const slice = shared_memory<float>();  // [kRows][kSliceColumns], by slice_offset
    const std::uint32_t first_row = blockIdx.y * kRows;
    const std::uint32_t output = (blockIdx.x * kWarps + warp_index()) * kWeightRows;
    float sums[kWeightRows][kRows] = {};
    for (std::uint32_t begin = 0; begin < p.w.columns; begin += kSliceColumns) {
        __syncthreads();
        load_slice<kRows>(p, first_row, begin, slice);
        __syncthreads();
        for (unsigned pass = 0; pass < kSliceColumns; pass += kPassColumns) {
            const unsigned column = pass + lane_index() * kLoadColumns;
            if (begin + column >= p.w.columns) break;
#pragma unroll
            for (unsigned o = 0; o < kWeightRows; ++o) {
                if (output + o >= p.w.rows) break;
                float w[kLoadColumns];
                WeightLoader<WeightType::f32>::load(p.w, output + o, begin + column, w);
                accumulate(w, slice, column, sums[o]);
            }
        }
    }
    constexpr unsigned kLanesPerRow = kWarpLanes / kRows;
    const std::uint32_t row = first_row + lane_index() / kLanesPerRow;
#pragma unroll
    for (unsigned o = 0; o < kWeightRows; ++o) {
        const float sum = warp_sum_rows(sums[o]);
        if (output + o >= p.w.rows || row >= p.rows || lane_index() % kLanesPerRow != 0) continue;
        float& out = p.out[std::size_t{row} * p.out_stride + output + o];
        out = p.add ? out + sum : sum;
    }
}

template <unsigned kRows>
void launch_rows(const Matmul& p, cudaStream_t stream) {
    constexpr unsigned kOutputs = kWarps * kWeightRows;
    const dim3 grid{(p.w.rows + kOutputs - 1) / kOutputs, (p.rows + kRows - 1) / kRows};
    launch(matmul_kernel<kRows>, grid, kThreads, kRows * kSliceColumns * sizeof(float), stream, p);
}

}  // namespace

void matmul(const Matmul& p, cudaStream_t stream) {
    if (p.rows == 1) {
        launch_rows<1>(p, stream);
    } else {
        launch_rows<8>(p, stream);
    }
}

}  // namespace troupe::gpu
