// How long products take; hidden, for tools/gpu-check on a card. The emulated one has no speed.
// Each launch multiplies by another matrix, so many that four times the L2 cache does not hold
// them.
#include <algorithm>
#include <chrono>
#include <iostream>

#include "gpu/device_memory.hpp"
#include "gpu/kernels/half_matmul.hpp"
#include "tests/gpu/gpu_fixture.hpp"
#include "tests/gpu/kernels_support.hpp"

using namespace troupe;
using namespace troupe::gpu;
using namespace troupe::test;

namespace {

constexpr std::uint32_t kWidth = 4096;
constexpr std::uint32_t kRowsMost = 2048;
constexpr int kRuns = 20;

std::size_t working_set_bytes() {
    cudaDeviceProp card{};
    CUDA_CHECK(cudaGetDeviceProperties(&card, 0));
    return std::size_t{4} * static_cast<std::size_t>(card.l2CacheSize);
}

// The median over kRuns of the seconds that `work(run)` takes on the stream.
template <class Work>
double median_seconds(const Stream& stream, Work work) {
    std::vector<double> seconds;
    for (int run = -2; run < kRuns; ++run) {
        const auto begin = std::chrono::steady_clock::now();
        work(run + 2);
        stream.synchronise();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
        if (run >= 0) seconds.push_back(took.count());
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
    return seconds[kRuns / 2];
}

void report(const std::string& kernel, std::uint32_t rows, double seconds, double bytes,
            double operations) {
    std::cout << "{\"kernel\": \"" << kernel << "\", \"rows\": " << rows
              << ", \"us\": " << seconds * 1e6 << ", \"gb_per_s\": " << bytes / seconds / 1e9
              << ", \"tflop_per_s\": " << operations / seconds / 1e12 << "}\n";
}

// As many matrices as the working set asks for, all with the same content.
std::vector<MatrixBuffer> matrices_of(model::TensorType type) {
    Random random(1);
    const RandomMatrix content(type, kWidth, kWidth, random);
    std::vector<MatrixBuffer> matrices;
    for (std::size_t bytes = 0; bytes < working_set_bytes() || matrices.empty();) {
        matrices.push_back(upload(content));
        bytes += matrices.back().data.bytes();
    }
    return matrices;
}

}  // namespace

TEST_CASE_METHOD(EmulatorFixture, "time of a copy, what others are compared with", "[.bench]") {
    Stream stream;
    const std::size_t bytes = std::max<std::size_t>(working_set_bytes(), 1U << 24);
    const DeviceBuffer<std::byte> from(bytes), to(bytes);
    const double seconds = median_seconds(stream, [&](int) {
        CUDA_CHECK(
            cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream.get()));
    });
    report("copy", 0, seconds, 2.0 * static_cast<double>(bytes), 0);
    CHECK(seconds > 0);
}

TEST_CASE_METHOD(EmulatorFixture, "time of products on tensor units", "[.bench]") {
    const auto type = GENERATE(model::TensorType::q4_1, model::TensorType::f16);
    const std::vector<MatrixBuffer> matrices = matrices_of(type);
    Stream stream;
    const auto x = DeviceBuffer<float>::upload(std::vector<float>(kRowsMost * kWidth, 0.5F));
    const DeviceBuffer<std::uint16_t> halves(std::size_t{kRowsMost} * kWidth);
    const DeviceBuffer<float> unscale(kRowsMost), out(std::size_t{kRowsMost} * kWidth);
    const HalfRows view{halves.data(), unscale.data(), kWidth};
    to_halves({x.data(), view, kRowsMost, kWidth, kWidth}, stream.get());
    for (const std::uint32_t rows : {1U, 8U, 32U, 64U, 128U, kRowsMost}) {
        const double seconds = median_seconds(stream, [&](int run) {
            const MatrixBuffer& w = matrices[static_cast<std::size_t>(run) % matrices.size()];
            half_matmul({w.view, view, out.data(), rows, kWidth, false}, stream.get());
        });
        const MatrixBuffer& w = matrices.front();
        report(std::string(model::to_string(type)) + " 4096 x 4096", rows, seconds,
               static_cast<double>(w.data.bytes() + w.scales.bytes()),
               2.0 * rows * kWidth * kWidth);
        CHECK(seconds > 0);
    }
}
