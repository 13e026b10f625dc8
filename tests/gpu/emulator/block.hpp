// Runs the blocks of a kernel, one after another. The threads of a block are fibers that run until
// they meet: at __syncthreads, at a warp's exchange, or at their end. In which order they go on is
// drawn from the seed, so code that needs a barrier and has none reads what is not there yet.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <cuda_runtime.h>

namespace troupe::emulator {

// Empty, or what went wrong: an address outside the device's memory, threads that wait for each
// other for ever, a launch that no card allows. Device memory must be open. `random`: 0 runs blocks
// and threads in ascending order.
[[nodiscard]] std::string run_kernel(const cudaLaunchConfig_t& config,
                                     const std::function<void()>& thread_body,
                                     std::uint64_t random);

}  // namespace troupe::emulator
