// What this machine could do at most: the figures that measured speeds are shares of.
#pragma once

#include <cstdint>

#include "cpu/kernels/kernels.hpp"

namespace troupe::cpu {

struct MachineLimits {
    double read_gb_per_s = 0;       // 1e9 bytes a second out of memory, all threads together
    double multiply_gop_per_s = 0;  // integer products and additions of the set, counted apart
};

// Measures for about `seconds` each, on `threads` threads (at least 1) that it starts; takes 128
// MiB of memory a thread.
[[nodiscard]] MachineLimits measure_machine_limits(const Kernels& kernels, std::uint32_t threads,
                                                   double seconds);

}  // namespace troupe::cpu
