// What a test may ask of the emulated device, beyond the runtime API.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::emulator {

// Decides how streams interleave, how early deferred work runs and in which order the threads of a
// block go on. 0: everything at the latest moment, threads in ascending order.
void set_seed(std::uint64_t seed);

// What the first fault was, in words; empty if there was none. As on a card, every call fails after
// a fault in a kernel.
[[nodiscard]] const std::string& fault();

// A new device: no fault, no pending work. Memory and streams must have been given back.
void reset_device();

// After so many more kernels the device is lost, once: a fault that stays until cudaDeviceReset().
// For a whole program, the environment's TROUPE_EMULATOR_LOSE_AFTER says the same.
void lose_device_after(std::uint64_t kernels);

// Kernels launched since the last reset_device().
[[nodiscard]] std::uint64_t launches();
[[nodiscard]] std::uint64_t graph_launches();

}  // namespace troupe::emulator
