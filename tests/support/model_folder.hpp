// Hugging Face folders for tests: a temporary folder, and safetensors files, right ones and wrong
// ones. Tests only.
#pragma once

#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/gguf_writer.hpp"

namespace troupe::test {

// Gone, with all in it, at the end.
class TemporaryFolder {
 public:
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "troupe_XXXXXX").string();
        path_ = ::mkdtemp(name.data());
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    std::filesystem::path write(const std::string& name, std::span<const std::byte> bytes) const {
        std::ofstream out(path_ / name, std::ios::binary);
        out.write(reinterpret_cast<const char*>(bytes.data()),
                  static_cast<std::streamsize>(bytes.size()));
        return path_ / name;
    }
    std::filesystem::path write(const std::string& name, std::string_view text) const {
        return write(name, std::as_bytes(std::span(text)));
    }
    void copy(const std::filesystem::path& from) const {
        std::filesystem::copy_file(from, path_ / from.filename());
    }

 private:
    std::filesystem::path path_;
};

// A header as it stands and the data behind it.
inline std::vector<std::byte> safetensors_bytes(std::string_view header,
                                                std::span<const std::byte> data) {
    return ByteWriter{}.u64(header.size()).raw(header).raw(data).bytes();
}

// A file of tensors one after the other.
class SafetensorsWriter {
 public:
    SafetensorsWriter& tensor(std::string_view name, std::string_view type,
                              const std::vector<std::uint64_t>& shape,
                              std::span<const std::byte> bytes) {
        header_ += header_.empty() ? "{" : ",";
        header_ +=
            '"' + std::string(name) + R"(":{"dtype":")" + std::string(type) + R"(","shape":[)";
        for (std::size_t i = 0; i < shape.size(); ++i)
            header_ += (i == 0 ? "" : ",") + std::to_string(shape[i]);
        const std::size_t begin = data_.bytes().size();
        data_.raw(bytes);
        header_ += R"(],"data_offsets":[)" + std::to_string(begin) + "," +
                   std::to_string(begin + bytes.size()) + "]}";
        return *this;
    }
    [[nodiscard]] std::vector<std::byte> bytes() const {
        return safetensors_bytes(header_.empty() ? "{}" : header_ + "}", data_.bytes());
    }

 private:
    std::string header_;
    ByteWriter data_;
};

}  // namespace troupe::test
