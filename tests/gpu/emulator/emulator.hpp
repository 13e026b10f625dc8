// What a test may ask of the emulated machine, beyond the runtime API.
#pragma once

#include <cstdint>
#include <string>

namespace troupe::emulator {

// Decides how streams interleave, how early deferred work runs and in which order the threads of a
// block go on. 0: everything at the latest moment, threads in ascending order.
void set_seed(std::uint64_t seed);

// What the first fault was, in words; empty if there was none. As on a card, every call to a device
// fails after a fault in a kernel of it.
[[nodiscard]] const std::string& fault();
// Whether the host ever waited for what could not come: on cards it would wait still.
[[nodiscard]] bool hung();

// A new machine with so many devices: no fault, no pending work. Memory and streams must have been
// given back. For a whole program, the environment's TROUPE_EMULATOR_DEVICES says how many.
void reset_machine(int devices = 1);

// After so many more kernels the device of the last is lost, once: a fault that stays until
// cudaDeviceReset(). For a whole program, the environment's TROUPE_EMULATOR_LOSE_AFTER says the
// same.
void lose_device_after(std::uint64_t kernels);

// The devices' compute capability, 8.0 or 9.0 (at first); for a whole program the environment's
// TROUPE_EMULATOR_CAPABILITY.
void set_capability(int major);

// Products of warpgroups add up in descending order: as if a card had another way for them.
void set_warpgroups_differ(bool differ);

// Of so many more captures the last one fails, once.
void fail_capture_after(std::uint64_t captures);

// Kernels launched since the last reset_machine().
[[nodiscard]] std::uint64_t launches();
[[nodiscard]] std::uint64_t graph_launches();

}  // namespace troupe::emulator
