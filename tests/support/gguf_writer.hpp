// Builds GGUF files in memory, right ones and, field by field, wrong ones. Tests only.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/gguf.hpp"
#include "model/tensor_types.hpp"

namespace troupe::test {

// Appends numbers and GGUF strings (a u64 length, then the bytes) in little endian.
class ByteWriter {
 public:
    template <class T>
    ByteWriter& number(T value) {
        static_assert(std::is_arithmetic_v<T>);
        const auto* bytes = reinterpret_cast<const std::byte*>(&value);
        bytes_.insert(bytes_.end(), bytes, bytes + sizeof value);
        return *this;
    }
    ByteWriter& u32(std::uint32_t value) { return number(value); }
    ByteWriter& u64(std::uint64_t value) { return number(value); }
    ByteWriter& raw(std::span<const std::byte> bytes) {
        bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
        return *this;
    }
    ByteWriter& raw(std::string_view text) { return raw(std::as_bytes(std::span{text})); }
    ByteWriter& string(std::string_view text) { return u64(text.size()).raw(text); }
    ByteWriter& pad_to(std::size_t alignment) {
        while (bytes_.size() % alignment != 0)
            bytes_.push_back(std::byte{0});
        return *this;
    }
    [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
    std::vector<std::byte> bytes_;
};

// A file of metadata and tensors; the overrides put a lie where the truth would stand.
class GgufWriter {
 public:
    using Type = model::GgufType;

    std::string magic = "GGUF";
    std::uint32_t version = 3;
    std::optional<std::uint64_t> tensor_count_override;
    std::optional<std::uint64_t> value_count_override;
    std::size_t alignment = 32;          // that the data section is laid out with
    std::size_t missing_tail_bytes = 0;  // cut off the end of the file

    // A metadata entry: key, type, then whatever `payload` holds.
    GgufWriter& value(std::string_view key, Type type, const ByteWriter& payload) {
        values_.string(key).u32(static_cast<std::uint32_t>(type)).raw(payload.bytes());
        ++value_count_;
        return *this;
    }
    // The same, byte for byte as given.
    GgufWriter& raw_value(const ByteWriter& entry) {
        values_.raw(entry.bytes());
        ++value_count_;
        return *this;
    }
    template <class T>
    GgufWriter& scalar(std::string_view key, Type type, T number) {
        return value(key, type, ByteWriter{}.number(number));
    }
    GgufWriter& u32(std::string_view key, std::uint32_t number) {
        return scalar(key, Type::u32, number);
    }
    GgufWriter& f32(std::string_view key, float number) { return scalar(key, Type::f32, number); }
    GgufWriter& boolean(std::string_view key, bool flag) {
        return scalar(key, Type::boolean, static_cast<std::uint8_t>(flag));
    }
    GgufWriter& string(std::string_view key, std::string_view text) {
        return value(key, Type::string, ByteWriter{}.string(text));
    }
    GgufWriter& strings(std::string_view key, const std::vector<std::string>& texts) {
        ByteWriter payload;
        payload.u32(static_cast<std::uint32_t>(Type::string)).u64(texts.size());
        for (const std::string& text : texts)
            payload.string(text);
        return value(key, Type::array, payload);
    }
    template <class T>
    GgufWriter& array(std::string_view key, Type element, const std::vector<T>& numbers) {
        ByteWriter payload;
        payload.u32(static_cast<std::uint32_t>(element)).u64(numbers.size());
        for (const T number : numbers)
            payload.number(number);
        return value(key, Type::array, payload);
    }

    // A tensor whose data is appended, aligned; the shape is not checked against it.
    GgufWriter& tensor(std::string_view name, std::uint32_t type,
                       const std::vector<std::int64_t>& dims, std::span<const std::byte> data,
                       std::optional<std::uint64_t> offset = std::nullopt) {
        data_.pad_to(alignment);
        tensors_.string(name).u32(static_cast<std::uint32_t>(dims.size()));
        for (const std::int64_t dim : dims)
            tensors_.number(dim);
        tensors_.u32(type).u64(offset.value_or(data_.bytes().size()));
        data_.raw(data);
        ++tensor_count_;
        return *this;
    }
    GgufWriter& f32_tensor(std::string_view name, const std::vector<std::int64_t>& dims,
                           std::span<const float> numbers) {
        return tensor(name, 0, dims, std::as_bytes(numbers));
    }
    GgufWriter& raw_tensor(const ByteWriter& entry) {
        tensors_.raw(entry.bytes());
        ++tensor_count_;
        return *this;
    }

    [[nodiscard]] std::vector<std::byte> bytes() const {
        ByteWriter file;
        file.raw(magic).u32(version);
        file.u64(tensor_count_override.value_or(tensor_count_));
        file.u64(value_count_override.value_or(value_count_));
        file.raw(values_.bytes()).raw(tensors_.bytes());
        if (tensor_count_ != 0) file.pad_to(alignment).raw(data_.bytes());
        auto out = file.bytes();
        out.resize(out.size() - missing_tail_bytes);
        return out;
    }

 private:
    std::uint64_t value_count_ = 0;
    std::uint64_t tensor_count_ = 0;
    ByteWriter values_;
    ByteWriter tensors_;
    ByteWriter data_;
};

}  // namespace troupe::test
