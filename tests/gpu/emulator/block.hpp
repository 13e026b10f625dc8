// Runs the blocks of a kernel, one after another. The threads of a block are fibers that run until
// they meet: at __syncthreads, at a warp's exchange, or at their end. In which order they go on is
// drawn from the seed, so code that needs a barrier and has none reads what is not there yet.
#pragma once

#include <cstdint>
#include <functional>
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
// Ends the running kernel with a fault.
[[noreturn]] void fail_kernel(const char* what);
[[nodiscard]] bool in_shared_memory(const void* at, std::size_t bytes);

}  // namespace troupe::emulator
