// Files as memory, through open and mmap.
#include "model/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "runtime/base/descriptor.hpp"

namespace troupe::model {
namespace {

Error system_error(const char* action, const std::filesystem::path& path) {
    const int code = errno;
    return Error{code == ENOENT ? ErrorKind::not_found : ErrorKind::io,
                 fmt::format("cannot {} {}: {}", action, path.string(),
                             std::generic_category().message(code))};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    // O_NONBLOCK: opening a named pipe must not wait for its writer.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.is_open()) return system_error("open", path);
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) return system_error("stat", path);
    if (S_ISDIR(status.st_mode)) {
        return invalid_input(
            fmt::format("{} is a directory; give the path of a model file in it", path.string()));
    }
    if (!S_ISREG(status.st_mode)) {
        return invalid_input(fmt::format("{} is not a regular file", path.string()));
    }
    if (status.st_size == 0) return MappedFile{};

    const auto size = static_cast<std::size_t>(status.st_size);
    void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) return system_error("map", path);
    return MappedFile{{static_cast<const std::byte*>(address), size}};
}

MappedFile::~MappedFile() {
    if (bytes_.empty()) return;
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace troupe::model
