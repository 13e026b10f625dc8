// A whole file mapped read-only. Owns the mapping; any thread may read it. Whoever keeps a view
// into it keeps the MappedFile alive, and nobody may truncate the file meanwhile: reading past its
// new end would be a SIGBUS.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>

#include "runtime/base/result.hpp"

namespace troupe::model {

class MappedFile {
 public:
    MappedFile() = default;
    MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
    MappedFile& operator=(MappedFile&& other) noexcept {
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~MappedFile();

    // Maps a regular file; an empty one gives an empty span. Errors: not_found where there is none,
    // invalid_input for a directory or device, io where the system refuses.
    [[nodiscard]] static Result<MappedFile> open(const std::filesystem::path& path);

    // Page-aligned; valid, and at the same address, as long as this object or what it is moved
    // into.
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

 private:
    explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

    std::span<const std::byte> bytes_;
};

[[nodiscard]] inline std::string_view as_text(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace troupe::model
