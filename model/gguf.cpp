// The typed getters of GgufFile. Values lie unaligned in the file, so every read is a copy.
#include "model/gguf.hpp"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <utility>

#include "runtime/base/assert.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

template <class T>
T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
}

bool is_integer(GgufType type) {
    switch (type) {
        case GgufType::f32:
        case GgufType::f64:
        case GgufType::boolean:
        case GgufType::string:
        case GgufType::array:
            return false;
        default:
            return true;
    }
}

// Calls use(value) with element `index` of an integer array, in the type it is stored in.
template <class Use>
auto with_integer(const GgufValue& value, std::uint64_t index, Use use) {
    const std::byte* data = value.bytes.data();
    switch (value.type) {
        case GgufType::u8:
            return use(load<std::uint8_t>(data + index));
        case GgufType::i8:
            return use(load<std::int8_t>(data + index));
        case GgufType::u16:
            return use(load<std::uint16_t>(data + 2 * index));
        case GgufType::i16:
            return use(load<std::int16_t>(data + 2 * index));
        case GgufType::u32:
            return use(load<std::uint32_t>(data + 4 * index));
        case GgufType::i32:
            return use(load<std::int32_t>(data + 4 * index));
        case GgufType::u64:
            return use(load<std::uint64_t>(data + 8 * index));
        default:
            TROUPE_ASSERT(value.type == GgufType::i64);
            return use(load<std::int64_t>(data + 8 * index));
    }
}

Error wrong_type(const GgufValue& value, std::string_view expected) {
    return invalid_input(fmt::format("metadata \"{}\" has type {}{}, expected {}",
                                     log::escaped(value.key), value.is_array ? "array of " : "",
                                     to_string(value.type), expected));
}

Error missing(std::string_view key) {
    return invalid_input(fmt::format("metadata \"{}\" is missing", key));
}

// Element `index` as a T; an error naming the key if it does not fit.
template <class T>
Result<T> integer_at(const GgufValue& value, std::uint64_t index) {
    return with_integer(value, index, [&](auto stored) -> Result<T> {
        if (std::in_range<T>(stored)) return static_cast<T>(stored);
        return invalid_input(fmt::format(
            "metadata \"{}\" is {}, expected {} to {}", log::escaped(value.key),
            std::int64_t(stored), std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
    });
}

template <class T>
Result<std::optional<T>> find_integer(const GgufFile& file, std::string_view key) {
    const GgufValue* value = file.find(key);
    if (value == nullptr) return std::optional<T>{};
    if (value->is_array || !is_integer(value->type)) return wrong_type(*value, "an integer");
    const auto integer = integer_at<T>(*value, 0);
    if (!integer) return integer.error();
    return std::optional<T>{*integer};
}

template <class T>
Result<T> required(Result<std::optional<T>> found, std::string_view key) {
    if (!found) return found.error();
    if (!*found) return missing(key);
    return std::move(**found);
}

}  // namespace

std::string_view to_string(GgufType type) {
    constexpr std::array<std::string_view, 13> kNames{"u8",  "i8",  "u16",  "i16",    "u32",
                                                      "i32", "f32", "bool", "string", "array",
                                                      "u64", "i64", "f64"};
    return kNames[static_cast<std::size_t>(type)];
}

const GgufValue* GgufFile::find(std::string_view key) const {
    const auto it = value_by_key_.find(key);
    return it == value_by_key_.end() ? nullptr : &values_[it->second];
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
    const auto it = tensor_by_name_.find(name);
    return it == tensor_by_name_.end() ? nullptr : &tensors_[it->second];
}

Result<std::optional<std::uint32_t>> GgufFile::find_u32(std::string_view key) const {
    return find_integer<std::uint32_t>(*this, key);
}

Result<std::optional<std::uint64_t>> GgufFile::find_u64(std::string_view key) const {
    return find_integer<std::uint64_t>(*this, key);
}

Result<std::optional<std::int64_t>> GgufFile::find_i64(std::string_view key) const {
    return find_integer<std::int64_t>(*this, key);
}

Result<std::optional<float>> GgufFile::find_f32(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::optional<float>{};
    if (!value->is_array && value->type == GgufType::f32) {
        return std::optional{load<float>(value->bytes.data())};
    }
    if (!value->is_array && value->type == GgufType::f64) {
        return std::optional{static_cast<float>(load<double>(value->bytes.data()))};
    }
    return wrong_type(*value, "f32");
}

Result<std::optional<bool>> GgufFile::find_bool(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::optional<bool>{};
    if (value->is_array || value->type != GgufType::boolean) return wrong_type(*value, "bool");
    return std::optional{value->bytes[0] != std::byte{0}};
}

Result<std::optional<std::string_view>> GgufFile::find_string(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return std::optional<std::string_view>{};
    if (value->is_array || value->type != GgufType::string) return wrong_type(*value, "string");
    return std::optional{
        std::string_view{reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size()}};
}

Result<GgufFile::OptionalVector<std::string_view>> GgufFile::find_strings(
    std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return OptionalVector<std::string_view>{};
    if (!value->is_array || value->type != GgufType::string) {
        return wrong_type(*value, "array of string");
    }
    std::vector<std::string_view> strings;
    strings.reserve(value->count);
    const std::byte* at = value->bytes.data();
    for (std::uint64_t i = 0; i < value->count; ++i) {
        const auto length = load<std::uint64_t>(at);
        strings.emplace_back(reinterpret_cast<const char*>(at + sizeof length), length);
        at += sizeof length + length;
    }
    return OptionalVector<std::string_view>{std::move(strings)};
}

Result<GgufFile::OptionalVector<std::int32_t>> GgufFile::find_i32s(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return OptionalVector<std::int32_t>{};
    if (!value->is_array || !is_integer(value->type)) {
        return wrong_type(*value, "array of an integer type");
    }
    std::vector<std::int32_t> numbers;
    numbers.reserve(value->count);
    for (std::uint64_t i = 0; i < value->count; ++i) {
        const auto number = integer_at<std::int32_t>(*value, i);
        if (!number) return number.error();
        numbers.push_back(*number);
    }
    return OptionalVector<std::int32_t>{std::move(numbers)};
}

Result<GgufFile::OptionalVector<float>> GgufFile::find_f32s(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return OptionalVector<float>{};
    if (!value->is_array || value->type != GgufType::f32) return wrong_type(*value, "array of f32");
    std::vector<float> numbers(value->count);
    if (!numbers.empty()) std::memcpy(numbers.data(), value->bytes.data(), value->bytes.size());
    return OptionalVector<float>{std::move(numbers)};
}

Result<std::uint32_t> GgufFile::get_u32(std::string_view key) const {
    return required(find_u32(key), key);
}

Result<float> GgufFile::get_f32(std::string_view key) const {
    return required(find_f32(key), key);
}

Result<std::string_view> GgufFile::get_string(std::string_view key) const {
    return required(find_string(key), key);
}

Result<std::vector<std::string_view>> GgufFile::get_strings(std::string_view key) const {
    return required(find_strings(key), key);
}

}  // namespace troupe::model
