// Compiled for processors that convert halves by instruction, as the kernels are.
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include <cuda_runtime.h>
#include <cuda_ptx_sm90_twin.hpp>
#include "tests/gpu/emulator/block.hpp"
#include "tests/gpu/emulator/machine.hpp"

namespace troupe::emulator {
namespace {

constexpr unsigned kRows = 16;  // of a and c, in a warp
constexpr unsigned kInner = 16;
constexpr unsigned kColumnsMax = 128;
constexpr unsigned kColumnBytes = 16;  // of eight rows
constexpr unsigned kEightColumns = 8 * kColumnBytes;

// ---- Products ------------------------------------------------------------------------------

// The descriptor of "Matrix Descriptor Format", without swizzling.
struct Operand {
    std::size_t start, rows_on, columns_on;  // bytes

    explicit Operand(std::uint64_t descriptor)
        : start((descriptor & 0x3FFF) << 4),
          rows_on((descriptor >> 16 & 0x3FFF) << 4),
          columns_on((descriptor >> 32 & 0x3FFF) << 4) {}
    // Eight rows of a column.
    [[nodiscard]] const unsigned char* at(unsigned eight_rows, unsigned column) const {
        return shared_begin() + start + eight_rows * rows_on + column / 8 * columns_on +
               column % 8 * kColumnBytes;
    }
};

struct Waiting {
    PendingProducts* own;
    unsigned pending;
};

PendingSums& sums_of(PendingProducts& own, const float* sums) {
    return *std::ranges::find(own.sums, sums, &PendingSums::sums);
}

// Row by row of b, columns side by side.
void read_right(std::uint64_t descriptor, unsigned columns, float (&b)[kInner][kColumnsMax]) {
    const Operand operand(descriptor);
    for (unsigned column = 0; column < columns; ++column) {
        for (unsigned eight = 0; eight < kInner / 8; ++eight) {
            alignas(32) float values[8];
            const auto* const at = reinterpret_cast<const __m128i*>(operand.at(eight, column));
            _mm256_store_ps(values, _mm256_cvtph_ps(_mm_load_si128(at)));
            for (unsigned k = 0; k < 8; ++k)
                b[eight * 8 + k][column] = values[k];
        }
    }
}

void read_left(void* const* lanes, std::size_t product, float (&a)[kRows][kInner]) {
    for (unsigned lane = 0; lane < 32; ++lane) {
        const std::uint32_t* const own =
            static_cast<const Waiting*>(lanes[lane])->own->products[product].left;
        for (unsigned i = 0; i < 4; ++i) {
            const unsigned row = lane / 4 + 8 * (i % 2), column = lane % 4 * 2 + 8 * (i / 2);
            a[row][column] = _cvtsh_ss(static_cast<std::uint16_t>(own[i]));
            a[row][column + 1] = _cvtsh_ss(static_cast<std::uint16_t>(own[i] >> 16));
        }
    }
}

// Of number `i` of a lane's sums.
unsigned row_of(unsigned lane, unsigned i) {
    return lane / 4 + i % 4 / 2 * 8;
}
unsigned column_of(unsigned lane, unsigned i) {
    return i / 4 * 8 + lane % 4 * 2 + i % 2;
}

// As products of a warp alone are: exact in float32, added in ascending order.
void multiply(void* const* lanes, std::size_t product) {
    const PendingProduct& first = static_cast<const Waiting*>(lanes[0])->own->products[product];
    const unsigned columns = first.sum_count * 2;
    float a[kRows][kInner];
    float b[kInner][kColumnsMax];
    alignas(32) float c[kRows][kColumnsMax] = {};
    read_left(lanes, product, a);
    read_right(first.right, columns, b);
    const auto for_each_sum = [&](auto visit) {
        for (unsigned lane = 0; lane < 32; ++lane) {
            PendingProducts& own = *static_cast<const Waiting*>(lanes[lane])->own;
            std::vector<float>& sums = sums_of(own, own.products[product].sums).values;
            for (unsigned i = 0; i < first.sum_count; ++i)
                visit(c[row_of(lane, i)][column_of(lane, i)], sums[i]);
        }
    };
    if (first.accumulate) for_each_sum([](float& whole, float& own) { whole = own; });
    for (unsigned row = 0; row < kRows; ++row) {
        for (unsigned column = 0; column < columns; column += 8) {
            __m256 sum = _mm256_load_ps(&c[row][column]);
            for (unsigned i = 0; i < kInner; ++i) {
                const unsigned k = machine().warpgroups_differ ? kInner - 1 - i : i;
                sum =
                    _mm256_fmadd_ps(_mm256_set1_ps(a[row][k]), _mm256_loadu_ps(&b[k][column]), sum);
            }
            _mm256_store_ps(&c[row][column], sum);
        }
    }
    for_each_sum([](float& whole, float& own) { own = whole; });
}

bool same_product(const PendingProduct& a, const PendingProduct& b) {
    return a.right == b.right && a.sum_count == b.sum_count && a.accumulate == b.accumulate &&
           a.group == b.group;
}

// Sums that nothing is on its way to become the program's again.
void give_back_sums(PendingProducts& own) {
    std::erase_if(own.sums, [&](const PendingSums& pending) {
        if (std::ranges::count(own.products, pending.sums, &PendingProduct::sums) > 0) return false;
        std::ranges::copy(pending.values, pending.sums);
        return true;
    });
}

void finish_products(void* const* lanes) {
    const Waiting& first = *static_cast<const Waiting*>(lanes[0]);
    std::size_t count = 0;
    while (count < first.own->products.size() &&
           first.own->products[count].group + first.pending < first.own->group) {
        for (unsigned lane = 1; lane < 32; ++lane) {
            const auto& own = static_cast<const Waiting*>(lanes[lane])->own->products;
            if (own.size() <= count || !same_product(own[count], first.own->products[count]))
                fail_kernel("lanes of a warp multiply different things");
        }
        multiply(lanes, count++);
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
        PendingProducts& own = *static_cast<const Waiting*>(lanes[lane])->own;
        own.products.erase(own.products.begin(),
                           own.products.begin() + static_cast<std::ptrdiff_t>(count));
        give_back_sums(own);
    }
}

void start_product(std::span<float> c, const std::uint32_t* a, std::uint64_t b, bool accumulate) {
    PendingProducts& own = pending_products();
    const Operand operand(b);
    const auto columns = static_cast<unsigned>(c.size()) * 2;
    if (!own.begun) fail_kernel("a warpgroup's product that no fence came before");
    if (operand.columns_on != kEightColumns || !in_shared_memory(operand.at(0, 0), kColumnBytes) ||
        !in_shared_memory(operand.at(1, columns - 1), kColumnBytes)) {
        fail_kernel("a warpgroup's operand that is not in shared memory");
    }
    if (std::ranges::count(own.sums, c.data(), &PendingSums::sums) == 0)
        own.sums.push_back({c.data(), {c.begin(), c.end()}});
    std::ranges::fill(c, std::nanf(""));
    own.products.push_back(
        {c.data(), a, b, static_cast<unsigned>(c.size()), accumulate, own.group});
    own.history = (own.history ^ b ^ (accumulate ? columns : ~columns)) * 0x9E3779B97F4A7C15ULL;
}

// ---- Barriers ------------------------------------------------------------------------------

ByteBarrier& barrier_at(const void* at) {
    const auto found = byte_barriers().find(at);
    if (found == byte_barriers().end()) fail_kernel("a barrier that was not initialised");
    return found->second;
}

// Copies arrive when all that the phase waits for has been said.
void try_to_finish(ByteBarrier& barrier) {
    std::size_t bytes = 0;
    for (const BulkCopy& copy : barrier.copies)
        bytes += copy.bytes;
    if (barrier.arrived < barrier.arrivals || bytes != barrier.bytes) return;
    for (const BulkCopy& copy : barrier.copies)
        std::memcpy(copy.to, copy.from, copy.bytes);
    barrier = {barrier.arrivals, 0, 0, {}, barrier.phases + 1};
}

struct PhaseWait {
    ByteBarrier* barrier;
    std::uint32_t parity;
    [[nodiscard]] bool over() const { return barrier->phases % 2 != parity; }
};

bool phase_is_over(void* argument) {
    const PhaseWait& wait = *static_cast<const PhaseWait*>(argument);
    if (!wait.over()) try_to_finish(*wait.barrier);
    return wait.over();
}

void count_arrival(std::uint64_t* at, std::uint32_t bytes) {
    ByteBarrier& barrier = barrier_at(at);
    if (barrier.arrived == barrier.arrivals) fail_kernel("more arrivals than a barrier waits for");
    ++barrier.arrived;
    barrier.bytes += bytes;
    if (barrier.bytes == 0 || eager()) try_to_finish(barrier);
}

}  // namespace

std::uint64_t warpgroup_operand(const void* shared, std::uint32_t rows_on) {
    if (reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 || rows_on % 16 != 0)
        fail_kernel("a warpgroup's operand that is not aligned to 16 bytes");
    const auto address =
        static_cast<std::uint64_t>(static_cast<const unsigned char*>(shared) - shared_begin());
    return (address & 0x3FFFF) >> 4 | std::uint64_t{rows_on >> 4} << 16 |
           std::uint64_t{kEightColumns >> 4} << 32;
}

void begin_products() {
    pending_products().begun = true;
}

void multiply_64x64x16(float (&c)[32], const std::uint32_t (&a)[4], std::uint64_t b,
                       bool accumulate) {
    start_product(c, a, b, accumulate);
}

void commit_products() {
    ++pending_products().group;
    pending_products().begun = false;
}

void wait_for_products(unsigned pending) {
    Waiting own{&pending_products(), pending};
    meet(WarpOperation::products, &own, finish_products);
}

void init_barrier(std::uint64_t* barrier, std::uint32_t arrivals) {
    if (reinterpret_cast<std::uintptr_t>(barrier) % 8 != 0 || !in_shared_memory(barrier, 8))
        fail_kernel("a barrier that is not 8 aligned bytes of shared memory");
    byte_barriers()[barrier] = {arrivals, 0, 0, {}, 0};
}

void arrive(std::uint64_t* barrier) {
    count_arrival(barrier, 0);
}

void arrive_expecting(std::uint64_t* barrier, std::uint32_t bytes) {
    count_arrival(barrier, bytes);
}

void wait_for_phase(std::uint64_t* barrier, std::uint32_t parity) {
    PhaseWait wait{&barrier_at(barrier), parity};
    if (eager() ? !phase_is_over(&wait) : !wait.over()) wait_until(phase_is_over, &wait);
}

void copy_bytes_async(void* shared, const void* global, std::uint32_t bytes,
                      std::uint64_t* barrier) {
    const auto misaligned = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16; };
    if (misaligned(shared) != 0 || misaligned(global) != 0 || bytes % 16 != 0 ||
        !in_shared_memory(shared, bytes)) {
        fail_kernel("an asynchronous copy that is not of aligned bytes to shared memory");
    }
    ByteBarrier& own = barrier_at(barrier);
    own.copies.push_back({shared, global, bytes});
    if (eager()) try_to_finish(own);
}

}  // namespace troupe::emulator
