// Compiled for processors that convert halves by instruction, as the kernels are.
#include <immintrin.h>

#include <cmath>
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

void widen(const std::uint16_t* halves, float* values, unsigned count) {
    for (unsigned i = 0; i < count; i += 8) {
        const __m128i eight = _mm_load_si128(reinterpret_cast<const __m128i*>(halves + i));
        _mm256_storeu_ps(values + i, _mm256_cvtph_ps(eight));
    }
}

// Which row and column of c its number `i` is in a lane.
unsigned row_of(unsigned lane, unsigned i) {
    return lane / 4 + 8 * (i / 2);
}
unsigned column_of(unsigned lane, unsigned i) {
    return 2 * (lane % 4) + i % 2;
}

// Products of halves are exact in float32; they are added to `c` in ascending order. `first`: 0 or
// 1, which halves of the operands.
void add_product(void* const* lanes, unsigned first, __m256 (&c)[kRows]) {
    alignas(16) std::uint16_t a_halves[kRows * kInner];
    alignas(16) std::uint16_t b_columns[kColumns * kInner];
    for (unsigned lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<const MmaOperands*>(lanes[lane]);
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 4; ++i) {
            const unsigned row = g + 8 * (i % 2), column = 2 * t + 8 * (i / 2);
            std::memcpy(a_halves + row * kInner + column, own.a + 4 * first + i, 4);
        }
        for (unsigned i = 0; i < 2; ++i)
            std::memcpy(b_columns + g * kInner + 2 * t + 8 * i, own.b + 2 * first + i, 4);
    }
    float a[kRows * kInner];
    float columns[kColumns * kInner];
    widen(a_halves, a, kRows * kInner);
    widen(b_columns, columns, kColumns * kInner);
    __m256 b[kInner];
    const __m256i stride =
        _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(kInner));
    for (unsigned k = 0; k < kInner; ++k)
        b[k] = _mm256_i32gather_ps(columns + k, stride, sizeof(float));
    for (unsigned m = 0; m < kRows; ++m) {
        for (unsigned k = 0; k < kInner; ++k)
            c[m] = _mm256_fmadd_ps(_mm256_set1_ps(a[m * kInner + k]), b[k], c[m]);
    }
}

void multiply_twice(void* const* lanes) {
    alignas(32) float c[kRows][kColumns];
    const auto for_each_sum = [&](auto visit) {
        for (unsigned lane = 0; lane < 32; ++lane) {
            float* const own = static_cast<const MmaOperands*>(lanes[lane])->c;
            for (unsigned i = 0; i < 4; ++i)
                visit(c[row_of(lane, i)][column_of(lane, i)], own[i]);
        }
    };
    for_each_sum([](float& whole, const float& own) { whole = own; });
    __m256 rows[kRows];
    for (unsigned m = 0; m < kRows; ++m)
        rows[m] = _mm256_load_ps(c[m]);
    add_product(lanes, 0, rows);
    add_product(lanes, 1, rows);
    for (unsigned m = 0; m < kRows; ++m)
        _mm256_store_ps(c[m], rows[m]);
    for_each_sum([](const float& whole, float& own) { own = whole; });
}

struct MatrixRows {
    std::uint32_t* to;  // [4]
    const std::uint16_t* row;
};

// Lane 8 i + r tells where row r of matrix i is; `transposed`: lanes get columns instead of rows.
template <bool transposed>
void spread_matrices(void* const* lanes) {
    for (unsigned lane = 0; lane < 32; ++lane) {
        std::uint32_t* const to = static_cast<const MatrixRows*>(lanes[lane])->to;
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 4; ++i) {
            const auto half = [&](unsigned row, unsigned column) -> std::uint32_t {
                return static_cast<const MatrixRows*>(lanes[8 * i + row])->row[column];
            };
            to[i] = transposed ? half(2 * t, g) | half(2 * t + 1, g) << 16
                               : half(g, 2 * t) | half(g, 2 * t + 1) << 16;
        }
    }
}

template <bool transposed>
void load_rows(std::uint32_t (&to)[4], const void* row) {
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0 || !in_shared_memory(row, 16))
        fail_kernel("a matrix's row that is not 16 aligned bytes of shared memory");
    MatrixRows own{to, static_cast<const std::uint16_t*>(row)};
    meet(WarpOperation::load_matrices, &own, spread_matrices<transposed>);
}

}  // namespace

void load_matrices(std::uint32_t (&to)[4], const void* row, std::uint32_t bytes_on) {
    load_rows<false>(to, static_cast<const std::byte*>(row) + bytes_on);
}

void load_matrices_transposed(std::uint32_t (&to)[4], const void* row, std::uint32_t bytes_on) {
    load_rows<true>(to, static_cast<const std::byte*>(row) + bytes_on);
}

// By way of double, so that no library's float32 shows.
float exp2_approximate(float x) {
    return x < -126 ? 0 : static_cast<float>(std::exp2(double{x}));
}

void mma_16x8x16_twice(float (&c)[4], const std::uint32_t (&a)[8], const std::uint32_t (&b)[4]) {
    MmaOperands operands{c, a, b};
    meet(WarpOperation::multiply, &operands, multiply_twice);
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
