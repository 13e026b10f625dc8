// What this machine could do at most: the figures that measured speeds are shares of.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels/kernels.hpp"
#include "runtime/base/result.hpp"

namespace troupe::cpu {

struct MachineLimits {
    double read_gb_per_s = 0;       // 1e9 bytes a second, all threads together
    double multiply_gop_per_s = 0;  // integer products and additions of the set, counted apart
};

// Measures for about `seconds` each, on `threads` threads (at least 1) that it starts. `read_bytes`
// of memory in huge pages are read over and over, as a model's weights are: large caches hold a
// part of them. Error: out_of_memory.
[[nodiscard]] Result<MachineLimits> measure_machine_limits(const Kernels& kernels,
                                                           std::uint32_t threads,
                                                           std::size_t read_bytes, double seconds);

}  // namespace troupe::cpu
