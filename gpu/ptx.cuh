// Instructions that CUDA C++ has no name for: products of small matrices on tensor units, and
// copies from global to shared memory that go on beside the program. For g++ they are twins in
// tests/gpu/emulator, written from the same pages of the PTX manual (ISA 9.0, "mma.m16n8k16",
// "cp.async").
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
// rows or columns.
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
using emulator::mma_16x8x16_twice;
template <int kPending>
void wait_for_copies() {
    emulator::wait_for_copies(kPending);
}

#endif

}  // namespace troupe::gpu::ptx
