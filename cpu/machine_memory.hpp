// How much memory this process may still take: what the machine has free, within what its control
// group allows.
#pragma once

#include <cstdint>

namespace troupe::cpu {

struct MachineMemory {
    std::uint64_t total_bytes = 0;
    std::uint64_t available_bytes = 0;
};

// From /proc/meminfo and, in a container, /sys/fs/cgroup (version 2). Zeros if neither can be read.
[[nodiscard]] MachineMemory machine_memory();

}  // namespace troupe::cpu
