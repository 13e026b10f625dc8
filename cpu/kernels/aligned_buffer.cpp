// Anonymous mappings; Linux merges their aligned 2 MiB stretches into huge pages on request.
#include "cpu/kernels/aligned_buffer.hpp"

#include <sys/mman.h>

#include <string>

namespace troupe::cpu {

Result<AlignedBuffer> AlignedBuffer::allocate(std::size_t bytes) {
    if (bytes == 0) return AlignedBuffer();
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return Error{ErrorKind::out_of_memory,
                     "the system has no room for a buffer of " + std::to_string(bytes) + " bytes"};
    }
    // Advice only: without huge pages everything works, a little slower.
    static_cast<void>(madvise(data, bytes, MADV_HUGEPAGE));
    return AlignedBuffer(static_cast<std::byte*>(data), bytes);
}

AlignedBuffer::~AlignedBuffer() {
    if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace troupe::cpu
