// What the hidden benches of the card share: how long work takes there, and how that is told.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "gpu/cuda_check.hpp"
#include "gpu/device_memory.hpp"

namespace troupe::test {

// The emulated card has no speed: there it is enough that a bench runs.
inline bool emulated() {
    cudaDeviceProp card{};
    CUDA_CHECK(cudaGetDeviceProperties(&card, 0));
    return std::string(card.name) == "emulated device";
}

// Four times the L2 cache, so that it does not hold what a bench reads.
inline std::size_t working_set_bytes() {
    cudaDeviceProp card{};
    CUDA_CHECK(cudaGetDeviceProperties(&card, 0));
    return std::size_t{4} * static_cast<std::size_t>(card.l2CacheSize);
}

// Seconds that `work(run)` takes on the stream, by the card's clock: runs 0, 1, ... are recorded as
// one graph, as the engine's launches are, so that neither a launch nor an event weighs in them;
// the median of its replays.
template <class Work>
double median_seconds(const gpu::Stream& stream, Work work) {
    const int runs = emulated() ? 2 : 20;
    const int replays = emulated() ? 1 : 20;
    work(0);  // what is set up once may not be recorded
    stream.synchronise();
    gpu::Capture capture(stream);
    for (int run = 0; run < runs; ++run)
        work(run);
    const gpu::Graph graph(capture.end(), stream);
    const gpu::Event begun(gpu::Timed{}), ended(gpu::Timed{});
    std::vector<double> seconds;
    for (int replay = -1; replay < replays; ++replay) {
        begun.record(stream);
        graph.launch(stream);
        ended.record(stream);
        ended.synchronise();
        if (replay >= 0) seconds.push_back(ended.seconds_since(begun) / runs);
    }
    const auto middle = seconds.begin() + replays / 2;
    std::nth_element(seconds.begin(), middle, seconds.end());
    return *middle;
}

inline void report(const std::string& kernel, std::uint32_t rows, double seconds, double bytes,
                   double operations) {
    std::cout << "{\"kernel\": \"" << kernel << "\", \"rows\": " << rows
              << ", \"us\": " << seconds * 1e6;
    if (bytes > 0) std::cout << ", \"gb_per_s\": " << bytes / seconds / 1e9;
    if (operations > 0) std::cout << ", \"tflop_per_s\": " << operations / seconds / 1e12;
    std::cout << "}\n";
}

}  // namespace troupe::test
