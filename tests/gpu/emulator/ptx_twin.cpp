// Compiled for processors that convert halves by instruction, as the kernels are.
#include <immintrin.h>

#include <cstring>

#include <cuda_runtime.h>
#include <cuda_ptx_twin.hpp>
#include "tests/gpu/emulator/block.hpp"

namespace troupe::emulator {
namespace {

constexpr unsigned kRows = 16;    // of a and c
constexpr unsigned kColumns = 8;  // of b and c
constexpr unsigned kInner = 16;   // columns of a, rows of b

struct MmaOperands {
    float* c;
    const std::uint32_t* a;
    const std::uint32_t* b;
};

void widen(const std::uint16_t* halves, double* values, unsigned count) {
    for (unsigned i = 0; i < count; i += 4) {
        const __m128i four = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(halves + i));
        _mm256_storeu_pd(values + i, _mm256_cvtps_pd(_mm_cvtph_ps(four)));
    }
}

// The products are exact in double, their sum nearly so; it is rounded to float32 once.
void multiply(void* const* lanes) {
    alignas(16) std::uint16_t a[kRows * kInner];
    alignas(16) std::uint16_t b_columns[kColumns * kInner];
    for (unsigned lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<const MmaOperands*>(lanes[lane]);
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 4; ++i) {
            const unsigned row = g + 8 * (i % 2), column = 2 * t + 8 * (i / 2);
            std::memcpy(a + row * kInner + column, own.a + i, 4);
        }
        for (unsigned i = 0; i < 2; ++i)
            std::memcpy(b_columns + g * kInner + 2 * t + 8 * i, own.b + i, 4);
    }
    double wide_a[kRows * kInner];
    double wide_columns[kColumns * kInner];
    double b[kInner][kColumns];
    widen(a, wide_a, kRows * kInner);
    widen(b_columns, wide_columns, kColumns * kInner);
    for (unsigned n = 0; n < kColumns; ++n) {
        for (unsigned k = 0; k < kInner; ++k)
            b[k][n] = wide_columns[n * kInner + k];
    }
    double sums[kRows][kColumns] = {};
    for (unsigned m = 0; m < kRows; ++m) {
        for (unsigned k = 0; k < kInner; ++k) {
            for (unsigned n = 0; n < kColumns; ++n)
                sums[m][n] += wide_a[m * kInner + k] * b[k][n];
        }
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
        float* const c = static_cast<const MmaOperands*>(lanes[lane])->c;
        for (unsigned i = 0; i < 4; ++i) {
            const double sum = sums[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
            c[i] = static_cast<float>(sum + c[i]);
        }
    }
}

}  // namespace

void mma_16x8x16(float (&c)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
    MmaOperands operands{c, a, b};
    meet(WarpOperation::multiply, &operands, multiply);
}

void copy_async(void* shared, const void* global) {
    const auto misaligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16; };
    if (misaligned(shared) != 0 || misaligned(global) != 0 || !in_shared_memory(shared, 16))
        fail_kernel("an asynchronous copy that is not of 16 aligned bytes to shared memory");
    PendingCopies& pending = pending_copies();
    pending.copies.push_back({shared, global, pending.group});
}

void commit_copies() {
    ++pending_copies().group;
}

void wait_for_copies(unsigned pending) {
    PendingCopies& own = pending_copies();
    std::erase_if(own.copies, [&](const PendingCopy& copy) {
        if (copy.group + pending >= own.group) return false;
        std::memcpy(copy.to, copy.from, 16);
        return true;
    });
}

}  // namespace troupe::emulator
