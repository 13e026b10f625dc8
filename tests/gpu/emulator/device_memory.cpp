#include "tests/gpu/emulator/device_memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/base/assert.hpp"

namespace troupe::emulator {
namespace {

constexpr std::size_t kRegionBytes = std::size_t{1} << 40;  // addresses only
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kAlignment = 256;  // what cudaMalloc promises
constexpr int kPoison = 0xFF;            // a NaN in every float format
constexpr int kMargin = 0xA5;

std::size_t round_up(std::size_t value, std::size_t step) {
    return (value + step - 1) / step * step;
}

}  // namespace

DeviceMemory::DeviceMemory() {
    void* const region =
        mmap(nullptr, kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TROUPE_ASSERT(region != MAP_FAILED);
    region_ = static_cast<std::byte*>(region);
}

DeviceMemory::~DeviceMemory() {
    munmap(region_, kRegionBytes);
}

void* DeviceMemory::allocate(std::size_t bytes) {
    if (bytes == 0 || bytes > free_bytes()) return nullptr;
    const std::size_t kept = round_up(bytes, kAlignment);
    Allocation allocation{region_ + next_, round_up(kept, kPageBytes), bytes};
    next_ += allocation.page_bytes + kPageBytes;
    TROUPE_ASSERT(next_ <= kRegionBytes);
    std::byte* const given = allocation.pages + allocation.page_bytes - kept;
    const bool open =
        mprotect(allocation.pages, allocation.page_bytes, PROT_READ | PROT_WRITE) == 0;
    TROUPE_ASSERT(open);
    std::memset(given, kPoison, bytes);
    std::memset(given + bytes, kMargin, kept - bytes);
    mprotect(allocation.pages, allocation.page_bytes, PROT_NONE);
    used_ += bytes;
    allocations_.emplace(given, allocation);
    return given;
}

bool DeviceMemory::release(void* pointer) {
    const auto it = allocations_.find(static_cast<std::byte*>(pointer));
    if (it == allocations_.end()) return false;
    madvise(it->second.pages, it->second.page_bytes, MADV_DONTNEED);
    used_ -= it->second.bytes;
    allocations_.erase(it);
    return true;
}

bool DeviceMemory::holds(const void* pointer, std::size_t bytes) const {
    const auto* const at = static_cast<const std::byte*>(pointer);
    auto it = allocations_.upper_bound(at);
    if (it == allocations_.begin()) return false;
    --it;
    return at + bytes <= it->first + it->second.bytes;
}

bool DeviceMemory::is_device_address(const void* pointer) const {
    const auto* const at = static_cast<const std::byte*>(pointer);
    return at >= region_ && at < region_ + kRegionBytes;
}

void DeviceMemory::open() {
    for (const auto& [address, allocation] : allocations_)
        mprotect(allocation.pages, allocation.page_bytes, PROT_READ | PROT_WRITE);
}

void DeviceMemory::close() {
    for (const auto& [address, allocation] : allocations_)
        mprotect(allocation.pages, allocation.page_bytes, PROT_NONE);
}

bool DeviceMemory::margins_intact() const {
    return std::all_of(allocations_.begin(), allocations_.end(), [](const auto& entry) {
        const std::byte* const end = entry.first + entry.second.bytes;
        const std::byte* const guard = entry.second.pages + entry.second.page_bytes;
        return std::all_of(end, guard, [](std::byte b) { return b == std::byte{kMargin}; });
    });
}

void* PinnedMemory::allocate(std::size_t bytes) {
    auto* const memory =
        static_cast<std::byte*>(std::aligned_alloc(kPageBytes, round_up(bytes, kPageBytes)));
    if (memory == nullptr) return nullptr;
    std::memset(memory, kPoison, bytes);
    bytes_.emplace(memory, bytes);
    return memory;
}

bool PinnedMemory::release(void* pointer) {
    if (bytes_.erase(static_cast<std::byte*>(pointer)) == 0) return false;
    std::free(pointer);
    return true;
}

bool PinnedMemory::holds(const void* pointer, std::size_t bytes) const {
    const auto* const at = static_cast<const std::byte*>(pointer);
    auto it = bytes_.upper_bound(at);
    if (it == bytes_.begin()) return false;
    --it;
    return at + bytes <= it->first + it->second;
}

}  // namespace troupe::emulator
