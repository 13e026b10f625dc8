// Puts a model that lies in other files into GGUF's terms: metadata under the same keys, tensors
// under the same names. What it is given is copied, but for tensors' bytes, which are views: of
// files or of bytes that are kept. A value of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/gguf.hpp"
#include "model/mapped_file.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

class GgufBuilder {
 public:
    GgufBuilder() = default;
    // Goes on with what a file holds, which stays valid as long as the result.
    explicit GgufBuilder(GgufFile file) : file_(std::move(file)) {}

    // A key that is there already gets the new value.
    void set_u32(std::string_view key, std::uint32_t value);
    void set_f32(std::string_view key, float value);
    void set_bool(std::string_view key, bool value);
    void set_string(std::string_view key, std::string_view text);
    void set_strings(std::string_view key, std::span<const std::string_view> texts);
    void set_i32s(std::string_view key, std::span<const std::int32_t> numbers);
    void set_f32s(std::string_view key, std::span<const float> numbers);
    // The value of another file, in the type that it has there; its bytes are copied.
    void set(const GgufValue& value);
    void remove(std::string_view key);

    // The file is part of the model: it counts in size_bytes() and lives as long as the result.
    std::span<const std::byte> keep(MappedFile file);
    std::span<const std::byte> keep(std::vector<std::byte> bytes);

    // `tensor.bytes` must live as long as the result; the name is copied.
    // Errors: invalid_input for a name that is there already.
    [[nodiscard]] Result<> add_tensor(GgufTensor tensor);

    // Another file's tensors, but not its metadata. Errors: those of add_tensor().
    [[nodiscard]] Result<> append_tensors(GgufFile part);

    [[nodiscard]] const GgufFile& file() const { return file_; }
    [[nodiscard]] GgufFile finish() { return std::move(file_); }

 private:
    void set_value(std::string_view key, GgufType type, bool is_array, std::uint64_t count,
                   std::span<const std::byte> bytes);
    std::string_view keep_text(std::string_view text);

    GgufFile file_;
};

}  // namespace troupe::model
