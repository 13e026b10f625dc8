// The emulator's own test: programs that are wrong, each in one way, must be seen to be wrong, and
// the same programs put right must be right under every seed.
#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "gpu/device.cuh"
#include "gpu/device_memory.hpp"
#include "gpu/ptx.cuh"
#include "model/backend.hpp"
#include "model/half.hpp"
#include "tests/gpu/gpu_fixture.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

constexpr unsigned kThreads = 64;
constexpr std::uint64_t kSeeds = 40;

struct Reverse {
    const float* in;  // [threads]
    float* out;       // [threads]
    bool synchronise;
};

__global__ void reverse_kernel(const Reverse p) {
    float* const shared = shared_memory<float>();
    shared[threadIdx.x] = p.in[threadIdx.x];
    if (p.synchronise) __syncthreads();
    p.out[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

struct Fill {
    float* out;
    unsigned count;
    float value;
};

__global__ void fill_kernel(const Fill p) {
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.count) p.out[i] = p.value;
}

struct Add {
    const float* in;
    float* out;
};

__global__ void add_kernel(const Add p) {
    p.out[threadIdx.x] = p.in[threadIdx.x] + 1;
}

__global__ void warp_sum_kernel(const Add p) {
    p.out[threadIdx.x] = warp_sum(p.in[threadIdx.x]);
}

__global__ void half_barrier_kernel(const Add p) {
    if (threadIdx.x < 32) __syncthreads();
    p.out[threadIdx.x] = 0;
}

std::vector<float> ascending(std::size_t count = kThreads) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(i);
    return values;
}

std::vector<float> reversed(bool synchronise) {
    Stream stream;
    auto in = DeviceBuffer<float>::upload(ascending());
    DeviceBuffer<float> out(kThreads);
    launch(reverse_kernel, 1, kThreads, kThreads * sizeof(float), stream.get(),
           {in.data(), out.data(), synchronise});
    stream.synchronise();
    return out.download();
}

// A copy on one stream, a kernel that reads it on another.
std::vector<float> copied_and_added(bool wait_for_copy) {
    Stream copies;
    Stream compute;
    Event copied;
    PinnedBuffer<float> source(kThreads);
    for (std::size_t i = 0; i < kThreads; ++i)
        source[i] = static_cast<float>(i);
    DeviceBuffer<float> in(kThreads);
    DeviceBuffer<float> out(kThreads);
    CUDA_CHECK(cudaMemcpyAsync(in.data(), source.data(), kThreads * sizeof(float),
                               cudaMemcpyHostToDevice, copies.get()));
    copied.record(copies);
    if (wait_for_copy) compute.wait(copied);
    launch(add_kernel, 1, kThreads, 0, compute.get(), {in.data(), out.data()});
    compute.synchronise();
    copies.synchronise();
    return out.download();
}

bool any_nan(const std::vector<float>& values) {
    return std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); });
}

void expect_fault(const std::string& what, const std::function<void()>& program) {
    CHECK_THROWS_AS(program(), model::BackendError);
    CHECK_THAT(emulator::fault(), Catch::Contains(what));
    CHECK(cudaDeviceSynchronize() != cudaSuccess);
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "a missing __syncthreads shows, whatever the order of threads",
                 "[gpu][emulator]") {
    std::vector<float> expected = ascending();
    std::reverse(expected.begin(), expected.end());
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        emulator::set_seed(seed);
        CHECK(reversed(true) == expected);
        CHECK(any_nan(reversed(false)));
    }
}

TEST_CASE_METHOD(EmulatorFixture, "a missing wait for an event shows under some seed",
                 "[gpu][emulator]") {
    std::vector<float> expected = ascending();
    for (float& value : expected)
        value += 1;
    int wrong = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        emulator::set_seed(seed);
        CHECK(copied_and_added(true) == expected);
        wrong += copied_and_added(false) != expected ? 1 : 0;
    }
    CHECK(wrong > 0);
    CHECK(wrong < static_cast<int>(kSeeds));  // the seed really decides
}

TEST_CASE_METHOD(EmulatorFixture, "only events that are timed and reached have a time between them",
                 "[gpu][emulator]") {
    Stream stream;
    const Event begun(Timed{}), ended(Timed{}), untimed;
    CHECK_THROWS_AS(ended.seconds_since(begun), model::BackendError);  // never recorded
    begun.record(stream);
    untimed.record(stream);
    stream.synchronise();
    ended.record(stream);
    CHECK_THROWS_AS(ended.seconds_since(begun), model::BackendError);  // not reached
    stream.synchronise();
    CHECK(ended.seconds_since(begun) >= 0);
    CHECK(begun.seconds_since(ended) <= 0);
    CHECK_THROWS_AS(untimed.seconds_since(begun), model::BackendError);
}

TEST_CASE_METHOD(EmulatorFixture, "a pinned buffer that is changed too early shows under some seed",
                 "[gpu][emulator]") {
    int changed = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        emulator::set_seed(seed);
        Stream stream;
        PinnedBuffer<float> source(1);
        source[0] = 1;
        DeviceBuffer<float> target(1);
        CUDA_CHECK(cudaMemcpyAsync(target.data(), source.data(), sizeof(float),
                                   cudaMemcpyHostToDevice, stream.get()));
        source[0] = 2;
        stream.synchronise();
        changed += target.download()[0] == 2 ? 1 : 0;
    }
    CHECK(changed > 0);
}

TEST_CASE_METHOD(EmulatorFixture, "memory that nobody has written holds NaNs", "[gpu][emulator]") {
    DeviceBuffer<float> fresh(kThreads);
    const std::vector<float> values = fresh.download();
    CHECK(std::all_of(values.begin(), values.end(), [](float v) { return std::isnan(v); }));
}

TEST_CASE_METHOD(EmulatorFixture, "a store past an allocation is a fault that stays",
                 "[gpu][emulator]") {
    constexpr unsigned kCount = 60;  // of 64 that an allocation's steps leave
    const unsigned stores = GENERATE(61U, 64U, 65U, 5000U);  // to the margin, onto the guard page
    expect_fault(stores <= 64 ? "past an allocation" : "not its to touch", [stores] {
        Stream stream;
        DeviceBuffer<float> out(kCount);
        launch(fill_kernel, 100, kThreads, 0, stream.get(), {out.data(), stores, 1.0F});
        stream.synchronise();
    });
}

TEST_CASE_METHOD(EmulatorFixture, "memory that was given back is a fault to touch",
                 "[gpu][emulator]") {
    expect_fault("not its to touch", [] {
        Stream stream;
        float* gone = DeviceBuffer<float>(kThreads).data();
        launch(fill_kernel, 1, kThreads, 0, stream.get(), {gone, kThreads, 1.0F});
        stream.synchronise();
    });
}

TEST_CASE_METHOD(EmulatorFixture, "a kernel may not be given host memory", "[gpu][emulator]") {
    expect_fault("address of host memory", [] {
        Stream stream;
        std::vector<float> host(kThreads);
        launch(fill_kernel, 1, kThreads, 0, stream.get(), {host.data(), kThreads, 1.0F});
        stream.synchronise();
    });
}

TEST_CASE_METHOD(EmulatorFixture, "host code may not touch device memory", "[gpu][emulator]") {
    DeviceBuffer<float> buffer(kThreads);
    const pid_t child = fork();
    if (child == 0) {
        std::signal(SIGSEGV, SIG_DFL);
        buffer.data()[3] = 1;
        _exit(0);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
}

TEST_CASE_METHOD(EmulatorFixture, "asynchronous copies want pinned memory of the right size",
                 "[gpu][emulator]") {
    Stream stream;
    DeviceBuffer<float> target(kThreads);
    std::vector<float> pageable(kThreads);
    PinnedBuffer<float> pinned(kThreads);
    const auto copy = [&](const float* from, std::size_t count) {
        return cudaMemcpyAsync(target.data(), from, count * sizeof(float), cudaMemcpyHostToDevice,
                               stream.get());
    };
    CHECK(copy(pinned.data(), kThreads) == cudaSuccess);
    CHECK(copy(pageable.data(), kThreads) == cudaErrorInvalidValue);
    CHECK(copy(pinned.data(), kThreads + 1) == cudaErrorInvalidValue);
}

TEST_CASE_METHOD(EmulatorFixture, "a barrier that only half of a block reaches is a fault",
                 "[gpu][emulator]") {
    expect_fault("wait for others", [] {
        Stream stream;
        DeviceBuffer<float> out(kThreads);
        launch(half_barrier_kernel, 1, kThreads, 0, stream.get(), {out.data(), out.data()});
        stream.synchronise();
    });
}

TEST_CASE_METHOD(EmulatorFixture, "a warp sums its own lanes, under every seed",
                 "[gpu][emulator]") {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        emulator::set_seed(seed);
        Stream stream;
        auto in = DeviceBuffer<float>::upload(ascending());
        DeviceBuffer<float> out(kThreads);
        launch(warp_sum_kernel, 1, kThreads, 0, stream.get(), {in.data(), out.data()});
        stream.synchronise();
        const std::vector<float> sums = out.download();
        for (std::size_t i = 0; i < kThreads; ++i)
            CHECK(sums[i] == (i < 32 ? 496.0F : 1520.0F));
    }
}

TEST_CASE_METHOD(EmulatorFixture, "a captured graph runs what was recorded, as often as launched",
                 "[gpu][emulator]") {
    Stream stream;
    auto values = DeviceBuffer<float>::upload(ascending());
    Capture capture(stream);
    launch(add_kernel, 1, kThreads, 0, stream.get(), {values.data(), values.data()});
    const Graph graph(capture.end(), stream);
    stream.synchronise();
    CHECK(values.download() == ascending());
    for (int i = 0; i < 3; ++i)
        graph.launch(stream);
    stream.synchronise();
    CHECK(values.download()[5] == 8);
}

TEST_CASE_METHOD(EmulatorFixture,
                 "a graph goes on with the sizes and pointers that it was recorded with",
                 "[gpu][emulator]") {
    Stream stream;
    auto values = DeviceBuffer<float>::upload(ascending());
    unsigned count = 3;
    Capture capture(stream);
    launch(fill_kernel, 1, kThreads, 0, stream.get(), {values.data(), count, -1.0F});
    const Graph graph(capture.end(), stream);
    count = 5;
    graph.launch(stream);
    stream.synchronise();
    CHECK(values.download()[2] == -1);
    CHECK(values.download()[3] == 3);
    values = DeviceBuffer<float>::upload(ascending());
    expect_fault("not its to touch", [&] {
        graph.launch(stream);
        stream.synchronise();
    });
}

TEST_CASE_METHOD(EmulatorFixture, "a capture that is given up leaves its stream as it was",
                 "[gpu][emulator]") {
    Stream stream;
    auto values = DeviceBuffer<float>::upload(ascending());
    const auto add = [&] {
        launch(add_kernel, 1, kThreads, 0, stream.get(), {values.data(), values.data()});
    };
    const bool fails = GENERATE(false, true);
    {
        Capture capture(stream);
        add();
        if (fails) emulator::fail_capture_after(1);
        if (fails) CHECK_THROWS_AS((void)capture.end(), model::BackendError);
    }
    add();
    stream.synchronise();
    CHECK(values.download()[5] == 6);
}

TEST_CASE_METHOD(EmulatorFixture, "a capture does not allow what waits or makes memory",
                 "[gpu][emulator]") {
    Stream stream;
    auto values = DeviceBuffer<float>::upload(ascending());
    const auto call = GENERATE(
        as<cudaError_t (*)(cudaStream_t, float*)>(),
        [](cudaStream_t s, float*) { return cudaStreamSynchronize(s); },
        [](cudaStream_t, float*) { return cudaDeviceSynchronize(); },
        [](cudaStream_t, float*) {
            void* more = nullptr;
            return cudaMalloc(&more, 16);
        },
        [](cudaStream_t, float* at) { return cudaMemset(at, 0, 4); });
    CUDA_CHECK(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    launch(add_kernel, 1, kThreads, 0, stream.get(), {values.data(), values.data()});
    CHECK(call(stream.get(), values.data()) == cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream.get(), &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    stream.synchronise();
    CHECK(values.download() == ascending());
}

namespace {

// A warp multiplies a of 16 x 32 and b of 32 x 8, both by rows, with the layout of gpu/ptx.cuh.
constexpr unsigned kInner = 32;
struct Multiply {
    const std::uint16_t* a;
    const std::uint16_t* b;
    float* c;  // [16][8]
};

__device__ std::uint32_t pair_of(std::uint16_t low, std::uint16_t high) {
    return std::uint32_t{high} << 16 | low;
}

__global__ void multiply_kernel(const Multiply p) {
    const unsigned g = threadIdx.x / 4, t = threadIdx.x % 4;
    std::uint32_t a[8], b[4];
    for (unsigned i = 0; i < 8; ++i) {
        const std::uint16_t* const at = p.a + (g + i % 2 * 8) * kInner + 2 * t + i / 2 * 8;
        a[i] = pair_of(at[0], at[1]);
    }
    for (unsigned i = 0; i < 4; ++i) {
        const std::uint16_t* const at = p.b + (2 * t + i * 8) * 8 + g;
        b[i] = pair_of(at[0], at[8]);
    }
    float c[4] = {1, 1, 1, 1};
    ptx::mma_16x8x16_twice(c, a, b);
    for (unsigned i = 0; i < 4; ++i)
        p.c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = c[i];
}

// Four matrices of 8 x 8 halves, each a row of 16 bytes a lane, as words of the lanes.
struct Spread {
    const std::uint16_t* in;  // [32][8]
    std::uint32_t* out;       // [32][4]
    bool transposed;
};

__global__ void spread_kernel(const Spread p) {
    std::uint16_t* const rows = shared_memory<std::uint16_t>();
    for (unsigned i = 0; i < 8; ++i)
        rows[8 * threadIdx.x + i] = p.in[8 * threadIdx.x + i];
    __syncthreads();
    std::uint32_t words[4];
    if (p.transposed) {
        ptx::load_matrices_transposed(words, rows, 16 * threadIdx.x);
    } else {
        ptx::load_matrices(words, rows, 16 * threadIdx.x);
    }
    for (unsigned i = 0; i < 4; ++i)
        p.out[4 * threadIdx.x + i] = words[i];
}

// Sixteen bytes a thread by way of shared memory.
struct CopyAround {
    const float* in;
    float* out;
    bool wait;
};

__global__ void copy_around_kernel(const CopyAround p) {
    float* const own = shared_memory<float>() + 4 * threadIdx.x;
    ptx::copy_async(own, p.in + 4 * threadIdx.x);
    ptx::commit_copies();
    if (p.wait) {
        ptx::wait_for_copies<0>();
    } else {
        ptx::wait_for_copies<1>();
    }
    for (unsigned i = 0; i < 4; ++i)
        p.out[4 * threadIdx.x + i] = own[i];
}

std::vector<float> copied_around(bool wait) {
    Stream stream;
    const auto in = DeviceBuffer<float>::upload(ascending(4 * kThreads));
    DeviceBuffer<float> out(4 * kThreads);
    launch(copy_around_kernel, 1, kThreads, 16 * kThreads, stream.get(),
           {in.data(), out.data(), wait});
    stream.synchronise();
    return out.download();
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "tensor units multiply matrices that are spread over a warp",
                 "[gpu][emulator]") {
    std::vector<std::uint16_t> a(16 * kInner), b(kInner * 8);
    std::vector<float> expected(16 * 8, 1);
    for (std::size_t i = 0; i < a.size(); ++i)
        a[i] = model::float_to_half(static_cast<float>(i % 37) - 18);
    for (std::size_t i = 0; i < b.size(); ++i)
        b[i] = model::float_to_half(static_cast<float>(i % 23) / 4);
    for (std::size_t i = 0; i < expected.size(); ++i) {
        for (std::size_t k = 0; k < kInner; ++k)
            expected[i] += model::half_to_float(a[i / 8 * kInner + k]) *
                           model::half_to_float(b[k * 8 + i % 8]);
    }
    Stream stream;
    const auto device_a = DeviceBuffer<std::uint16_t>::upload(a);
    const auto device_b = DeviceBuffer<std::uint16_t>::upload(b);
    DeviceBuffer<float> c(16 * 8);
    launch(multiply_kernel, 1, 32, 0, stream.get(), {device_a.data(), device_b.data(), c.data()});
    stream.synchronise();
    CHECK(c.download() == expected);
}

TEST_CASE_METHOD(EmulatorFixture, "matrices in shared memory are spread over a warp, turned or not",
                 "[gpu][emulator]") {
    const bool transposed = GENERATE(false, true);
    std::vector<std::uint16_t> matrices(32 * 8);  // number i is matrix, row, column
    for (std::size_t i = 0; i < matrices.size(); ++i)
        matrices[i] = static_cast<std::uint16_t>(i);
    Stream stream;
    const auto in = DeviceBuffer<std::uint16_t>::upload(matrices);
    DeviceBuffer<std::uint32_t> out(32 * 4);
    launch(spread_kernel, 1, 32, 32 * 16, stream.get(), {in.data(), out.data(), transposed});
    stream.synchronise();
    const std::vector<std::uint32_t> words = out.download();
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
        for (std::uint32_t i = 0; i < 4; ++i) {
            CAPTURE(lane, i);
            const std::uint32_t g = lane / 4, t = lane % 4;
            const std::uint32_t first = transposed ? 64 * i + 16 * t + g : 64 * i + 8 * g + 2 * t;
            CHECK(words[4 * lane + i] == (first | (first + (transposed ? 8 : 1)) << 16));
        }
    }
}

TEST_CASE_METHOD(EmulatorFixture, "an asynchronous copy that nobody waits for has not arrived",
                 "[gpu][emulator]") {
    CHECK(copied_around(true) == ascending(4 * kThreads));
    CHECK(any_nan(copied_around(false)));
}
