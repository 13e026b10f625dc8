// Reads GGUF model files, versions 2 and 3, little endian. Owns the mapping (if opened from a path)
// and an index of what is in it; keys, strings and tensor bytes are views into it. Immutable once
// open: any thread may read it. Models that come in other files are put into these terms by
// GgufBuilder, so that nothing after this knows the difference.
//
// A file is untrusted: every count, length and offset is checked against what is left of the file
// before it is used, and nothing is allocated that the file's own size does not bound.
// Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/mapped_file.hpp"
#include "model/row_order.hpp"
#include "model/tensor_types.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

inline constexpr std::uint32_t kGgufDimsMax = 4;
inline constexpr std::size_t kGgufTensorNameBytesMax = 63;  // what the rest of the field can load
inline constexpr std::size_t kGgufKeyBytesMax = 65'535;
inline constexpr std::uint32_t kGgufAlignmentMax = 1U << 20;

// The types of metadata values, numbered as in the file.
enum class GgufType : std::uint32_t {
    u8,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    array,
    u64,
    i64,
    f64,
};

[[nodiscard]] std::string_view to_string(GgufType type);

// A metadata value as it lies in the file: for a string its text, for an array its elements, else
// the scalar. Never aligned, so read it through GgufFile's getters.
struct GgufValue {
    std::string_view key;
    GgufType type = GgufType::u8;  // of the value; of each element if is_array
    bool is_array = false;
    std::uint64_t count = 1;  // elements
    std::span<const std::byte> bytes;
};

// `dims` as GGUF orders them: dims[0] is the length of a row, the unused ones are 1.
struct GgufTensor {
    std::string_view name;
    TensorType type = TensorType::f32;
    std::uint32_t dim_count = 0;
    std::array<std::uint64_t, kGgufDimsMax> dims{1, 1, 1, 1};
    std::span<const std::byte> bytes;
    RowOrder order;  // of the rows in `bytes`; the identity in GGUF files

    [[nodiscard]] std::uint64_t element_count() const {
        return dims[0] * dims[1] * dims[2] * dims[3];
    }
};

class GgufFile {
 public:
    // Errors: those of MappedFile::open, and invalid_input or unsupported for a file that is not a
    // GGUF this can read; the message names the file, the field and what to do about it.
    [[nodiscard]] static Result<GgufFile> open(const std::filesystem::path& path);

    // The same for bytes that are in memory already; they must outlive the result.
    [[nodiscard]] static Result<GgufFile> parse(std::span<const std::byte> file);

    [[nodiscard]] std::uint32_t version() const { return version_; }
    [[nodiscard]] std::uint32_t alignment() const { return alignment_; }
    [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
    [[nodiscard]] std::span<const GgufValue> values() const { return values_; }
    [[nodiscard]] std::span<const GgufTensor> tensors() const { return tensors_; }

    // Null where there is none of that name.
    [[nodiscard]] const GgufValue* find(std::string_view key) const;
    [[nodiscard]] const GgufTensor* find_tensor(std::string_view name) const;

    // Typed getters: empty where the key is absent; an error naming the key where it has another
    // type, or a value that does not fit. Integers are accepted from any integer type.
    [[nodiscard]] Result<std::optional<std::uint32_t>> find_u32(std::string_view key) const;
    [[nodiscard]] Result<std::optional<std::uint64_t>> find_u64(std::string_view key) const;
    [[nodiscard]] Result<std::optional<std::int64_t>> find_i64(std::string_view key) const;
    [[nodiscard]] Result<std::optional<float>> find_f32(std::string_view key) const;
    [[nodiscard]] Result<std::optional<bool>> find_bool(std::string_view key) const;
    [[nodiscard]] Result<std::optional<std::string_view>> find_string(std::string_view key) const;

    // Arrays, copied because the file does not align them; the strings themselves are views.
    template <class T>
    using OptionalVector = std::optional<std::vector<T>>;
    [[nodiscard]] Result<OptionalVector<std::string_view>> find_strings(std::string_view key) const;
    [[nodiscard]] Result<OptionalVector<std::int32_t>> find_i32s(std::string_view key) const;
    [[nodiscard]] Result<OptionalVector<float>> find_f32s(std::string_view key) const;

    // The same where absence is an error too; it says which key is missing.
    [[nodiscard]] Result<std::uint32_t> get_u32(std::string_view key) const;
    [[nodiscard]] Result<float> get_f32(std::string_view key) const;
    [[nodiscard]] Result<std::string_view> get_string(std::string_view key) const;
    [[nodiscard]] Result<std::vector<std::string_view>> get_strings(std::string_view key) const;

 private:
    friend class GgufParser;
    friend class GgufBuilder;

    std::vector<MappedFile> mappings_;         // none when parsed from memory
    std::deque<std::vector<std::byte>> made_;  // what is in no file as it is needed
    std::uint64_t size_bytes_ = 0;             // of the files
    std::uint32_t version_ = 0;
    std::uint32_t alignment_ = 32;
    std::vector<GgufValue> values_;
    std::vector<GgufTensor> tensors_;
    std::unordered_map<std::string_view, std::size_t> value_by_key_;
    std::unordered_map<std::string_view, std::size_t> tensor_by_name_;
};

}  // namespace troupe::model
