// Runs the blocks of a kernel, one after another. The threads of a block are fibers that run until
// they meet: at __syncthreads, at a warp's exchange, or at their end. In which order they go on is
// drawn from the seed, so code that needs a barrier and has none reads what is not there yet.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <cuda_runtime.h>

namespace troupe::emulator {

// Empty, or what went wrong: an address outside the device's memory, threads that wait for each
// other for ever, a launch that no card allows. Device memory must be open. `random`: 0 runs blocks
// and threads in ascending order.
[[nodiscard]] std::string run_kernel(const cudaLaunchConfig_t& config,
                                     const std::function<void()>& thread_body,
                                     std::uint64_t random);

// Dynamic shared memory of a block: without asking for more, and with it.
inline constexpr std::size_t kSharedBytesFree = 48 * 1024;
inline constexpr std::size_t kSharedBytesMax = 227 * 1024;

// Whether asynchronous work of the running block should happen as early as it may, rather than when
// somebody needs it: drawn from the seed.
[[nodiscard]] bool eager();
// Of the running kernel: waits until ready(argument), which is asked when no thread can go on
// otherwise.
void wait_until(bool (*ready)(void*), void* argument);
// Of the running kernel: waits for the warp's other lanes; the last that comes calls `complete`
// with the arguments of all 32, before any of them goes on.
void meet(WarpOperation operation, void* argument, void (*complete)(void* const* arguments));

// Copies of the running thread to shared memory that were started and not waited for.
struct PendingCopy {
    void* to = nullptr;
    const void* from = nullptr;
    unsigned group = 0;
};
struct PendingCopies {
    std::vector<PendingCopy> copies;
    unsigned group = 0;  // that is being filled
};
[[nodiscard]] PendingCopies& pending_copies();

// Products of the running thread's warpgroup that were started and not waited for. What becomes of
// their sums is kept here meanwhile; the program's own are NaNs.
struct PendingProduct {
    float* sums = nullptr;
    const std::uint32_t* left = nullptr;  // [4]
    std::uint64_t right = 0;              // as the descriptor has it
    unsigned sum_count = 0;
    bool accumulate = false;
    unsigned group = 0;
};
struct PendingSums {
    float* sums = nullptr;
    std::vector<float> values;
};
struct PendingProducts {
    std::vector<PendingProduct> products;
    std::vector<PendingSums> sums;
    unsigned group = 0;         // that is being filled
    bool begun = false;         // it may be
    std::uint64_t history = 0;  // a hash of all that were started: the same for a whole warpgroup
};
[[nodiscard]] PendingProducts& pending_products();

// A barrier of the running block that counts arrivals and bytes.
struct BulkCopy {
    void* to = nullptr;
    const void* from = nullptr;
    std::size_t bytes = 0;
};
struct ByteBarrier {
    unsigned arrivals = 0;  // of a phase
    unsigned arrived = 0;
    std::size_t bytes = 0;  // expected in this phase
    std::vector<BulkCopy> copies;
    std::uint32_t phases = 0;  // that are over
};
[[nodiscard]] std::map<const void*, ByteBarrier>& byte_barriers();
// Ends the running kernel with a fault.
[[noreturn]] void fail_kernel(const char* what);
[[nodiscard]] bool in_shared_memory(const void* at, std::size_t bytes);
[[nodiscard]] unsigned char* shared_begin();

}  // namespace troupe::emulator
