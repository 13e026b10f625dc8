#include "cpu/kv_pool.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::cpu {

Result<KvPool> KvPool::create(const KvShape& shape, std::uint32_t pages, bool huge_pages) {
    TROUPE_ASSERT(pages > 0 && shape.page_bytes() > 0 && shape.layer_bytes() % 64 == 0);
    const std::size_t bytes = pages * shape.page_bytes();
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return Error{ErrorKind::out_of_memory,
                     fmt::format("cannot reserve {} MiB for the KV cache: {}; give it less memory",
                                 bytes >> 20, std::strerror(errno))};
    }
    // Only advice: without it the pool works, with more TLB misses.
    if (huge_pages) madvise(memory, bytes, MADV_HUGEPAGE);
    return KvPool(shape, pages, static_cast<std::byte*>(memory));
}

KvPool::KvPool(KvPool&& other) noexcept
    : shape_(other.shape_), pages_(other.pages_), memory_(std::exchange(other.memory_, nullptr)) {}

KvPool& KvPool::operator=(KvPool&& other) noexcept {
    std::swap(shape_, other.shape_);
    std::swap(pages_, other.pages_);
    std::swap(memory_, other.memory_);
    return *this;
}

KvPool::~KvPool() {
    if (memory_ != nullptr) munmap(memory_, pages_ * shape_.page_bytes());
}

void KvPool::copy_page(model::PageId from, model::PageId to) {
    TROUPE_ASSERT(from < pages_ && to < pages_ && from != to);
    const std::size_t bytes = shape_.page_bytes();
    std::memcpy(memory_ + to * bytes, memory_ + from * bytes, bytes);
}

}  // namespace troupe::cpu
