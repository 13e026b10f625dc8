// Instructions of compute capability 9.0 alone: products of a whole warpgroup (four warps), copies
// of many bytes to shared memory that tell a barrier when they have arrived, and such barriers. For
// g++ they are twins in tests/gpu/emulator, written from the same pages of the PTX manual (ISA 9.0,
// "wgmma", "cp.async.bulk", "mbarrier"). Where TROUPE_SM90 is not defined, there are none.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#if !defined(__CUDACC__)
#include <cuda_ptx_sm90_twin.hpp>
#define TROUPE_SM90
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
#define TROUPE_SM90
#endif

namespace troupe::gpu::ptx {

// In a lane, of 64 x 64: sum 4 j + i is the sum i of a product of 16 x 8 (gpu/ptx.cuh) of the
// warp's 16 rows and the columns 8 j .. 8 j + 7.
using WarpgroupSums = float[32];

// Lies in shared memory. A phase is over when all of its arrivals have come, and all bytes that
// they said would.
using ArrivalBarrier = std::uint64_t;

#if !defined(__CUDACC__)

using emulator::arrive;
using emulator::arrive_expecting;
using emulator::commit_products;
using emulator::copy_bytes_async;
using emulator::init_barrier;
using emulator::multiply_64x64x16;
using emulator::show_barriers;
using emulator::wait_for_phase;
using emulator::warpgroup_operand;
template <int kPending>
void wait_for_products() {
    emulator::wait_for_products(kPending);
}
template <unsigned kProducts>
void begin_products(std::uint32_t (&)[kProducts][4]) {
    emulator::begin_products();
}
inline void sums_are_there(WarpgroupSums&) {}
inline void leave_registers() {}
inline void take_registers() {}

#elif defined(TROUPE_SM90)

__device__ __forceinline__ std::uint32_t shared_address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

// `b` of a product, of 16 rows of halves in shared memory: eight rows of a column lie together, in
// 16 aligned bytes; the next column is 16 bytes on, the other eight rows are `rows_on` bytes on.
__device__ __forceinline__ std::uint64_t warpgroup_operand(const void* shared,
                                                           std::uint32_t rows_on) {
    constexpr std::uint64_t kEightColumns = 128;
    return (shared_address(shared) & 0x3FFFFU) >> 4 | std::uint64_t{rows_on >> 4} << 16 |
           kEightColumns >> 4 << 32;
}

// Before the first product of a group, when its left operands have been written.
template <unsigned kProducts>
__device__ __forceinline__ void begin_products(std::uint32_t (&a)[kProducts][4]) {
    // Or the compiler would write the later ones when products have begun.
#pragma unroll
    for (unsigned i = 0; i < kProducts; ++i)
        asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

// c = a b, or c += a b, for a of 64 x 16 and b of 16 x 64 halves: warp w of the
// warpgroup has rows 16 w .. 16 w + 15 of `a` and `c`, `a` spread over its lanes as a product of
// 16 x 8 x 16 wants it. Goes on beside the program: until wait_for_products() nobody may touch `c`,
// `a` or `b`.
__device__ __forceinline__ void multiply_64x64x16(WarpgroupSums& c, const std::uint32_t (&a)[4],
                                                  std::uint64_t b, bool accumulate) {
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "setp.ne.b32 p, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "{%32, %33, %34, %35}, %36, p, 1, 1, 0;\n"
        "}\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]),
          "+f"(c[7]), "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]),
          "+f"(c[14]), "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]),
          "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]),
          "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),
          "r"(static_cast<std::uint32_t>(accumulate)));
}
// Closes a group of products.
__device__ __forceinline__ void commit_products() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Until at most the `kPending` youngest groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// After a wait: the compiler may not have looked at the sums before it.
__device__ __forceinline__ void sums_are_there(WarpgroupSums& c) {
#pragma unroll
    for (float& sum : c)
        asm volatile("" : "+f"(sum)::"memory");
}

__device__ __forceinline__ void init_barrier(ArrivalBarrier* barrier, std::uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(arrivals)
                 : "memory");
}
// Before __syncthreads(): then other threads, and copies, may use the barriers.
__device__ __forceinline__ void show_barriers() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(ArrivalBarrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}
__device__ __forceinline__ void arrive_expecting(ArrivalBarrier* barrier, std::uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}
// Until the last phase of this parity is over: 0 for the first phase, the third, and so on.
__device__ __forceinline__ void wait_for_phase(ArrivalBarrier* barrier, std::uint32_t parity) {
    std::uint32_t over = 0;
    while (over == 0) {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n"
            "}\n"
            : "=r"(over)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
    }
}

// Of the 168 registers of each of three warpgroups' threads, one warpgroup leaves most to the
// others, which take them up: every thread calls one of the two.
__device__ __forceinline__ void leave_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
}
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
}

// Starts a copy whose arrival the barrier counts; addresses and bytes are multiples of 16.
__device__ __forceinline__ void copy_bytes_async(void* shared, const void* global,
                                                 std::uint32_t bytes, ArrivalBarrier* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, "
        "[%3];" ::"r"(shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
}

#endif

}  // namespace troupe::gpu::ptx
