// Instructions that CUDA C++ has no name for: products of small matrices on tensor units and the
// loads of their operands, copies from global to shared memory that go on beside the program, and a
// quick power of two. For g++ they are twins in tests/gpu/emulator, written from the same pages of
// the PTX manual (ISA 9.0, "mma.m16n8k16", "ldmatrix", "cp.async", "ex2").
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#if !defined(__CUDACC__)
#include <cuda_ptx_twin.hpp>
#endif

namespace troupe::gpu::ptx {

#if defined(__CUDACC__)

// c += a b for a of 16 x 16 and b of 16 x 8 halves, c of 16 x 8 floats, each spread over a warp;
// twice, with the second halves of `a` and `b` after the first. With g = lane / 4 and
// t = lane % 4, a lane holds, two halves a word, the lower column or row first:
//   a: (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8)     row, column of the first half
//   b: (2t, g), (2t + 8, g)                                   row of the first half, column
//   c: (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
// Sums are of float32 or better, in an order of the card's own that does not depend on values,
// rows or columns. A product with a zero adds nothing, whatever finite number it multiplies.
__device__ __forceinline__ void mma_16x8x16_twice(float (&c)[4], const std::uint32_t (&a)[8],
                                                  const std::uint32_t (&b)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
            "{%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[4 * i]), "r"(a[4 * i + 1]), "r"(a[4 * i + 2]), "r"(a[4 * i + 3]), "r"(b[2 * i]),
              "r"(b[2 * i + 1]));
    }
}

// Four matrices of 8 x 8 halves from shared memory, spread over a warp. Lane 8 i + r tells where
// row r of matrix i begins, aligned to 16 bytes: `bytes_on` behind `row`. With g and t as above, a
// lane gets of each matrix (g, 2t) and (g, 2t + 1) in a word, or transposed (2t, g) and (2t + 1,
// g): what `b` of a product wants where columns of b are rows in memory, or where rows are.
__device__ __forceinline__ void load_matrices(std::uint32_t (&to)[4], const void* row,
                                              std::uint32_t bytes_on) {
    const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row)) + bytes_on;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&to)[4], const void* row,
                                                         std::uint32_t bytes_on) {
    const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row)) + bytes_on;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

// 2^x within two units in the last place, 0 where that is below 2^-126; 2^0 is 1.
__device__ __forceinline__ float exp2_approximate(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// Starts a copy of 16 bytes, both ends aligned to as many, into the group that the thread's next
// commit_copies() closes.
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
    const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until at most the `kPending` youngest of the thread's groups are under way. What other threads
// copied is there after a barrier.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

#else

using emulator::commit_copies;
using emulator::copy_async;
using emulator::exp2_approximate;
using emulator::load_matrices;
using emulator::load_matrices_transposed;
using emulator::mma_16x8x16_twice;
template <int kPending>
void wait_for_copies() {
    emulator::wait_for_copies(kPending);
}

#endif

}  // namespace troupe::gpu::ptx
