// CUDA for g++: the part of the runtime API and of the device language that gpu/ uses, under the
// toolkit's own names, so that the same .cu files compile without it. This folder stands first in
// the include path of the emulated build. Kernels run on the host, a fiber a thread (block.hpp);
// copies and launches are deferred (machine.hpp); device memory is a place of its own that host
// code cannot touch (device_memory.hpp). Values and meanings: CUDA C++ Programming Guide 13.0.
//
// Differences that a kernel must know: shared memory is dynamic only (a static __shared__ array
// would be each thread's own), full warps only, and one host thread at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __shared__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

// ---- Types ---------------------------------------------------------------------------------

struct dim3 {
    unsigned x, y, z;

    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
    unsigned x = 0, y = 0, z = 0;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
inline constexpr unsigned cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0;
inline constexpr unsigned cudaEventDisableTiming = 2;

namespace troupe::emulator {
struct Stream;
struct Event;
struct Graph;
}  // namespace troupe::emulator

using cudaStream_t = troupe::emulator::Stream*;
using cudaEvent_t = troupe::emulator::Event*;
using cudaGraph_t = troupe::emulator::Graph*;
using cudaGraphExec_t = troupe::emulator::Graph*;

struct cudaDeviceProp {
    char name[256];
    std::size_t totalGlobalMem;
    int major, minor;
    int multiProcessorCount;
    int l2CacheSize;  // bytes
};

struct cudaLaunchConfig_t {
    dim3 gridDim;
    dim3 blockDim;
    std::size_t dynamicSmemBytes = 0;
    cudaStream_t stream = nullptr;
    void* attrs = nullptr;
    unsigned numAttrs = 0;
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

// ---- The runtime API -----------------------------------------------------------------------

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes);

cudaError_t cudaMalloc(void** pointer, std::size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void* to, int value, std::size_t bytes);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceReset();
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags = 0);
cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);

namespace troupe::emulator {

// The bytes of a kernel's parameter, in which addresses are looked for.
struct ParameterBytes {
    const void* data;
    std::size_t size;
};
cudaError_t enqueue_kernel(const void* kernel, const cudaLaunchConfig_t& config,
                           std::vector<ParameterBytes> parameters,
                           std::function<void()> thread_body);

}  // namespace troupe::emulator

// Of the current device.
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <class... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute,
                                 int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    static_assert((std::is_trivially_copyable_v<Parameters> && ...));
    std::tuple<Parameters...> values{std::forward<Arguments>(arguments)...};
    std::apply([](auto&... value) { (__builtin_clear_padding(&value), ...); }, values);
    auto bytes = std::apply(
        [](const auto&... value) {
            return std::vector<troupe::emulator::ParameterBytes>{{&value, sizeof value}...};
        },
        values);
    return troupe::emulator::enqueue_kernel(reinterpret_cast<const void*>(kernel), *config,
                                            std::move(bytes),
                                            [kernel, values] { std::apply(kernel, values); });
}

// ---- The device language -------------------------------------------------------------------

// Of the thread that is running; set at every change from one to the next.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

void __syncthreads();
void __syncwarp(unsigned mask = 0xFFFFFFFFU);

namespace troupe::emulator {

enum class WarpOperation { synchronise, shuffle, ballot, multiply, load_matrices, products };

// Gives `value` to the other lanes, waits for them, and returns what each of the 32 gave.
const std::array<std::uint64_t, 32>& exchange(WarpOperation operation, unsigned mask,
                                              std::uint64_t value);
unsigned lane();

template <class T>
T shuffle(unsigned mask, T value, unsigned from) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = exchange(WarpOperation::shuffle, mask, bits)[from % 32];
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace troupe::emulator

template <class T>
T __shfl_sync(unsigned mask, T value, int from) {
    return troupe::emulator::shuffle(mask, value, static_cast<unsigned>(from));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask) {
    return troupe::emulator::shuffle(mask, value,
                                     troupe::emulator::lane() ^ static_cast<unsigned>(lane_mask));
}

// Byte i of the result is byte `selector >> 4i & 7` of y:x.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const std::uint64_t both = std::uint64_t{y} << 32 | x;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; ++i)
        result |= static_cast<unsigned>(both >> (selector >> (4 * i) & 7U) * 8 & 255U) << (8 * i);
    return result;
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
    const auto& votes = troupe::emulator::exchange(troupe::emulator::WarpOperation::ballot, mask,
                                                   predicate != 0 ? 1 : 0);
    unsigned result = 0;
    for (unsigned i = 0; i < 32; ++i)
        result |= static_cast<unsigned>(votes[i]) << i;
    return result;
}

// No thread is interrupted between two steps of its own, so plain code is atomic.
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
    return std::exchange(*address, static_cast<T>(*address + value));
}
template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
    return std::exchange(*address, *address | value);
}
