// Measures the machine's limits.
#include "cpu/machine_limits.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "cpu/compute_threads.hpp"
#include "cpu/kernels/aligned_buffer.hpp"
#include "cpu/kernels/panel.hpp"

namespace troupe::cpu {
namespace {

// The best rate of calls of `work`, which returns how much it did, within some seconds: whatever
// else the machine does only ever slows one down.
template <class Work>
double best_rate(double seconds, Work work) {
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    double best = 0;
    do {
        const auto before = Clock::now();
        const auto amount = static_cast<double>(work());
        best =
            std::max(best, amount / std::chrono::duration<double>(Clock::now() - before).count());
    } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
    return best;
}

// Reads as the products do.
float largest(const Kernels& kernels, const float* x, std::size_t count) {
    constexpr std::size_t stretch = 256;
    float most = x[0];
    for (std::size_t at = 0; at < count; at += stretch) {
        const std::size_t here = std::min(stretch, count - at);
        prefetch_ahead(reinterpret_cast<const std::byte*>(x + at), here * sizeof(float));
        most = std::max(most, kernels.max(x + at, here));
    }
    return most;
}

}  // namespace

Result<MachineLimits> measure_machine_limits(const Kernels& kernels, std::uint32_t threads,
                                             std::size_t read_bytes, double seconds) {
    ComputeThreads team(threads);
    const std::uint32_t pieces = threads * 16;  // so that no thread waits long for another
    const std::size_t count = std::max<std::size_t>(read_bytes / sizeof(float) / pieces, 1);
    const auto memory = AlignedBuffer::allocate(count * pieces * sizeof(float));
    if (!memory) return memory.error();
    auto* floats = reinterpret_cast<float*>(memory->data());
    std::fill_n(floats, count * pieces, 1.0F);
    std::vector<float> maxima(pieces);
    MachineLimits limits;
    limits.read_gb_per_s = 1e-9 * best_rate(seconds, [&] {
                               team.run(pieces, [&](std::uint32_t piece, std::uint32_t) {
                                   maxima[piece] = largest(kernels, floats + piece * count, count);
                               });
                               return count * pieces * sizeof(float);
                           });
    std::vector<std::uint64_t> counts(pieces);
    std::uint64_t rounds = 1;
    while (kernels.multiply_add_limit(rounds) * threads < 50'000'000)
        rounds *= 2;
    limits.multiply_gop_per_s = 2e-9 * best_rate(seconds, [&] {
                                    team.run(pieces, [&](std::uint32_t piece, std::uint32_t) {
                                        counts[piece] = kernels.multiply_add_limit(rounds);
                                    });
                                    std::uint64_t sum = 0;
                                    for (const std::uint64_t done : counts)
                                        sum += done;
                                    return sum;
                                });
    return limits;
}

}  // namespace troupe::cpu
