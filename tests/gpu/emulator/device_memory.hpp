// An emulated device's memory. Every allocation ends at a page that nobody may touch; all of it is
// out of reach while host code or another device's kernel runs; fresh memory holds NaNs of every
// float type; memory that was given back is never used again. Also which host memory is pinned.
#pragma once

#include <cstddef>
#include <map>

namespace troupe::emulator {

class DeviceMemory {
 public:
    static constexpr std::size_t kTotalBytes = std::size_t{1} << 30;

    DeviceMemory();
    DeviceMemory(const DeviceMemory&) = delete;
    DeviceMemory& operator=(const DeviceMemory&) = delete;
    ~DeviceMemory();

    // Null where the device has no room.
    void* allocate(std::size_t bytes);
    [[nodiscard]] bool release(void* pointer);
    [[nodiscard]] std::size_t free_bytes() const { return kTotalBytes - used_; }

    // All of [pointer, pointer + bytes) in one live allocation.
    [[nodiscard]] bool holds(const void* pointer, std::size_t bytes) const;
    // Somewhere in the range from which device addresses are given out.
    [[nodiscard]] bool is_device_address(const void* pointer) const;

    // Lets the host's own instructions reach the memory: for the time that device work runs.
    void open();
    void close();
    // False where something was written between an allocation's end and its guard page.
    [[nodiscard]] bool margins_intact() const;

 private:
    struct Allocation {
        std::byte* pages = nullptr;
        std::size_t page_bytes = 0;  // accessible, before the guard page
        std::size_t bytes = 0;       // that were asked for
    };

    std::byte* region_ = nullptr;
    std::size_t next_ = 0;  // offset in the region of the next allocation
    std::size_t used_ = 0;
    std::map<const std::byte*, Allocation> allocations_;  // by the address that was given out
};

// Host memory for asynchronous copies, of whichever device.
class PinnedMemory {
 public:
    void* allocate(std::size_t bytes);
    [[nodiscard]] bool release(void* pointer);
    [[nodiscard]] bool holds(const void* pointer, std::size_t bytes) const;

 private:
    std::map<const std::byte*, std::size_t> bytes_;  // by address
};

}  // namespace troupe::emulator
