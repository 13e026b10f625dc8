// What every kernel file shares: the block's shared memory, sums over a warp, and the launch.
// Device code is compiled by nvcc, or by g++ against tests/gpu/emulator, which gives the same bits:
// floats are combined by the operations that are written here and no others (nvcc: --fmad=false).
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "gpu/cuda_check.hpp"

namespace troupe::gpu {

inline constexpr unsigned kWarpLanes = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Of shared memory a block has so much without asking.
inline constexpr std::size_t kSharedBytesFree = 48 * 1024;

// The block's dynamic shared memory: the only kind that is used, because the emulator knows no
// other. Holds garbage at the start.
template <class T>
__device__ __forceinline__ T* shared_memory() {
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    return reinterpret_cast<T*>(shared_bytes);
}

__device__ __forceinline__ unsigned lane_index() {
    return threadIdx.x % kWarpLanes;
}
__device__ __forceinline__ unsigned warp_index() {
    return threadIdx.x / kWarpLanes;
}

// The sum over a warp, in every lane: lanes 16 apart first, then 8, 4, 2, 1.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(kAllLanes, value, distance);
    return value;
}

__device__ __forceinline__ float warp_max(float value) {
    for (int distance = 16; distance > 0; distance /= 2)
        value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
    return value;
}

// Starts kernel(params) on a stream. Throws BackendError.
template <class Params>
void launch(void (*kernel)(Params), dim3 grid, dim3 block, std::size_t dynamic_bytes,
            cudaStream_t stream, const Params& params) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = dynamic_bytes;
    config.stream = stream;
    if (dynamic_bytes > kSharedBytesFree) {
        CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(dynamic_bytes)));
    }
    CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, params));
}

}  // namespace troupe::gpu
