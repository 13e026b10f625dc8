// What the hidden benches of the card share: how long work takes there, and how that is told.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "gpu/cuda_check.hpp"
#include "gpu/device_memory.hpp"

namespace troupe::test {

constexpr int kRuns = 20;

// Four times the L2 cache, so that it does not hold what a bench reads.
inline std::size_t working_set_bytes() {
    cudaDeviceProp card{};
    CUDA_CHECK(cudaGetDeviceProperties(&card, 0));
    return std::size_t{4} * static_cast<std::size_t>(card.l2CacheSize);
}

// The median over kRuns of the seconds that `work(run)` takes on the stream.
template <class Work>
double median_seconds(const gpu::Stream& stream, Work work) {
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

inline void report(const std::string& kernel, std::uint32_t rows, double seconds, double bytes,
                   double operations) {
    std::cout << "{\"kernel\": \"" << kernel << "\", \"rows\": " << rows
              << ", \"us\": " << seconds * 1e6 << ", \"gb_per_s\": " << bytes / seconds / 1e9
              << ", \"tflop_per_s\": " << operations / seconds / 1e12 << "}\n";
}

}  // namespace troupe::test
