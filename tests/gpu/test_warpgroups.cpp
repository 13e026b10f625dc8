// What the emulator knows of warpgroups, of copies of many bytes and of the barriers that count
// them: products by the manual's layout, and programs that are wrong, each in one way, seen to be.
#include <cmath>
#include <vector>

#include "gpu/cards.hpp"
#include "gpu/device.cuh"
#include "gpu/device_memory.hpp"
#include "gpu/ptx_sm90.cuh"
#include "gpu/warpgroup_check.hpp"
#include "model/half.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/gpu/kernels_support.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

constexpr unsigned kThreads = 128;
constexpr unsigned kRows = 64, kColumns = 64, kInner = 32;  // two products, one after another
constexpr unsigned kStepBytes = 16 * kColumns * 2;          // of b, for one product
constexpr std::uint64_t kSeeds = 24;

enum class Mistake {
    none,
    no_wait_for_copy,
    no_wait_for_products,
    operand_overwritten,
    shared_overwritten,
    no_fence,
    other_operand_in_a_warp,
    outside_shared_memory,
    fewer_bytes_than_expected,
    more_arrivals,
    copy_never_awaited,
};

struct Multiply {
    const std::uint16_t* a;  // [kRows][kInner]
    const std::byte* b;      // [kInner / 8][kColumns][8], halves
    float* c;                // [kRows][kColumns]
    Mistake mistake;
};

__device__ void load_left(const Multiply& p, unsigned step, std::uint32_t (&a)[4]) {
    const unsigned g = lane_index() / 4, t = lane_index() % 4;
    for (unsigned i = 0; i < 4; ++i) {
        const unsigned row = warp_index() * 16 + g + i % 2 * 8;
        const unsigned column = step * 16 + 2 * t + i / 2 * 8;
        memcpy(&a[i], p.a + row * kInner + column, sizeof a[i]);
    }
}

__global__ void multiply_kernel(const Multiply p) {
    std::byte* const b = shared_memory<std::byte>();
    auto* const barrier = reinterpret_cast<ptx::ArrivalBarrier*>(b + 2 * kStepBytes);
    if (threadIdx.x == 0) {
        ptx::init_barrier(barrier, 1);
        ptx::show_barriers();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const bool fewer = p.mistake == Mistake::fewer_bytes_than_expected;
        ptx::arrive_expecting(barrier, 2 * kStepBytes + (fewer ? 16 : 0));
        if (p.mistake == Mistake::more_arrivals) ptx::arrive(barrier);
        ptx::copy_bytes_async(b, p.b, 2 * kStepBytes, barrier);
    }
    if (p.mistake == Mistake::copy_never_awaited) return;
    if (p.mistake != Mistake::no_wait_for_copy) ptx::wait_for_phase(barrier, 0);
    std::uint32_t a[2][4];
    ptx::WarpgroupSums c;
    for (unsigned step = 0; step < 2; ++step)
        load_left(p, step, a[step]);
    if (p.mistake != Mistake::no_fence) ptx::begin_products(a);
    for (unsigned step = 0; step < 2; ++step) {
        const bool other = p.mistake == Mistake::other_operand_in_a_warp && warp_index() == 2;
        const bool outside = p.mistake == Mistake::outside_shared_memory;
        const unsigned at = outside ? 2 * kStepBytes : (other ? 1 - step : step) * kStepBytes;
        ptx::multiply_64x64x16(c, a[step], ptx::warpgroup_operand(b + at, kStepBytes / 2),
                               step > 0);
    }
    ptx::commit_products();
    if (p.mistake == Mistake::operand_overwritten) a[1][0] = 0;
    if (p.mistake == Mistake::shared_overwritten && threadIdx.x < 8)
        b[kStepBytes + threadIdx.x] = std::byte{0};
    if (p.mistake != Mistake::no_wait_for_products) ptx::wait_for_products<0>();
    for (unsigned i = 0; i < kColumns / 2; ++i) {
        const unsigned row = warp_index() * 16 + lane_index() / 4 + i % 4 / 2 * 8;
        const unsigned column = i / 4 * 8 + lane_index() % 4 * 2 + i % 2;
        p.c[row * kColumns + column] = c[i];
    }
}

struct Operands {
    std::vector<std::uint16_t> a, b;  // b: [kInner][kColumns]
    std::vector<float> product;
};

Operands random_operands() {
    Random random(7);
    Operands made;
    for (const float value : random_floats(kRows * kInner, random))
        made.a.push_back(model::float_to_half(value));
    for (const float value : random_floats(kInner * kColumns, random))
        made.b.push_back(model::float_to_half(value));
    made.product.resize(kRows * kColumns);
    for (unsigned row = 0; row < kRows; ++row) {
        for (unsigned column = 0; column < kColumns; ++column) {
            float sum = 0;
            for (unsigned k = 0; k < kInner; ++k)
                sum = std::fma(model::half_to_float(made.a[row * kInner + k]),
                               model::half_to_float(made.b[k * kColumns + column]), sum);
            made.product[row * kColumns + column] = sum;
        }
    }
    return made;
}

// What comes out; nothing where the emulator reports a fault.
std::vector<float> run(const Operands& operands, Mistake mistake) {
    std::vector<std::uint16_t> lying(operands.b.size());
    for (unsigned k = 0; k < kInner; ++k) {
        for (unsigned column = 0; column < kColumns; ++column)
            lying[(k / 8 * kColumns + column) * 8 + k % 8] = operands.b[k * kColumns + column];
    }
    const auto a = DeviceBuffer<std::uint16_t>::upload(operands.a);
    const auto b = DeviceBuffer<std::uint16_t>::upload(lying);
    const DeviceBuffer<float> c(kRows * kColumns);
    Stream stream;
    try {
        launch(multiply_kernel, 1, kThreads, 2 * kStepBytes + sizeof(ptx::ArrivalBarrier),
               stream.get(),
               {a.data(), reinterpret_cast<const std::byte*>(b.data()), c.data(), mistake});
        stream.synchronise();
    } catch (const model::BackendError&) {
        return {};
    }
    return c.download();
}

bool seen(const Operands& operands, Mistake mistake) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        emulator::reset_machine();
        emulator::set_seed(seed);
        const std::vector<float> result = run(operands, mistake);
        if (result.empty() ||
            !same_bits(result.data(), operands.product.data(), operands.product.size())) {
            return true;
        }
    }
    return false;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "a warpgroup multiplies by the manual's layout", "[emulator]") {
    CHECK_FALSE(seen(random_operands(), Mistake::none));
}

TEST_CASE_METHOD(EmulatorFixture, "mistakes with warpgroups and barriers are seen", "[emulator]") {
    const auto mistake = GENERATE(
        Mistake::no_wait_for_copy, Mistake::no_wait_for_products, Mistake::operand_overwritten,
        Mistake::shared_overwritten, Mistake::no_fence, Mistake::other_operand_in_a_warp,
        Mistake::outside_shared_memory, Mistake::fewer_bytes_than_expected, Mistake::more_arrivals,
        Mistake::copy_never_awaited);
    CAPTURE(static_cast<int>(mistake));
    CHECK(seen(random_operands(), mistake));
}

TEST_CASE_METHOD(EmulatorFixture, "a card whose warpgroups add up otherwise is used without them",
                 "[emulator]") {
    CHECK(find_cards(0, 1).value().warpgroups);
    emulator::set_warpgroups_differ(true);
    CHECK_FALSE(find_cards(0, 1).value().warpgroups);
    emulator::set_warpgroups_differ(false);
    emulator::set_capability(8);
    CHECK_FALSE(find_cards(0, 1).value().warpgroups);
}
