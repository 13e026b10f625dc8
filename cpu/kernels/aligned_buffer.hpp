// A block of zeroed, page-aligned memory that asks for huge pages: weights, KV pages, activations.
#pragma once

#include <cstddef>
#include <utility>

#include "runtime/base/result.hpp"

namespace troupe::cpu {

class AlignedBuffer {
 public:
    AlignedBuffer() = default;

    // Pages are touched (and so taken from the system) only when first used. Error: out_of_memory.
    [[nodiscard]] static Result<AlignedBuffer> allocate(std::size_t bytes);

    AlignedBuffer(AlignedBuffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~AlignedBuffer();

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
    AlignedBuffer(std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}

    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

}  // namespace troupe::cpu
