#include "cpu/machine_memory.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace troupe::cpu {
namespace {

// A file that holds one number, or a word such as "max".
std::optional<std::uint64_t> read_number(const char* path) {
    std::uint64_t value = 0;
    if (std::ifstream file(path); file >> value) return value;
    return std::nullopt;
}

}  // namespace

MachineMemory machine_memory() {
    MachineMemory memory;
    std::ifstream file("/proc/meminfo");
    std::string name;
    std::string unit;
    for (std::uint64_t kib = 0; file >> name >> kib && std::getline(file, unit);) {
        if (name == "MemTotal:") memory.total_bytes = kib * 1024;
        if (name == "MemAvailable:") memory.available_bytes = kib * 1024;
    }
    const auto limit = read_number("/sys/fs/cgroup/memory.max");
    const auto used = read_number("/sys/fs/cgroup/memory.current");
    if (limit && used) {
        const std::uint64_t left = *limit > *used ? *limit - *used : 0;
        memory.total_bytes = std::min(memory.total_bytes, *limit);
        memory.available_bytes = std::min(memory.available_bytes, left);
    }
    return memory;
}

}  // namespace troupe::cpu
