#include "model/gguf_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

}  // namespace

void GgufBuilder::set_u32(std::string_view key, std::uint32_t value) {
    set_value(key, GgufType::u32, false, 1, bytes_of(value));
}

void GgufBuilder::set_f32(std::string_view key, float value) {
    set_value(key, GgufType::f32, false, 1, bytes_of(value));
}

void GgufBuilder::set_bool(std::string_view key, bool value) {
    set_value(key, GgufType::boolean, false, 1, bytes_of(static_cast<std::uint8_t>(value)));
}

void GgufBuilder::set_string(std::string_view key, std::string_view text) {
    set_value(key, GgufType::string, false, 1, std::as_bytes(std::span(text)));
}

void GgufBuilder::set_strings(std::string_view key, std::span<const std::string_view> texts) {
    std::vector<std::byte> bytes;
    for (const std::string_view text : texts) {
        const std::uint64_t length = text.size();
        const auto head = bytes_of(length);
        bytes.insert(bytes.end(), head.begin(), head.end());
        const auto body = std::as_bytes(std::span(text));
        bytes.insert(bytes.end(), body.begin(), body.end());
    }
    set_value(key, GgufType::string, true, texts.size(), bytes);
}

void GgufBuilder::set_i32s(std::string_view key, std::span<const std::int32_t> numbers) {
    set_value(key, GgufType::i32, true, numbers.size(), std::as_bytes(numbers));
}

void GgufBuilder::set_f32s(std::string_view key, std::span<const float> numbers) {
    set_value(key, GgufType::f32, true, numbers.size(), std::as_bytes(numbers));
}

void GgufBuilder::set(const GgufValue& value) {
    set_value(value.key, value.type, value.is_array, value.count, value.bytes);
}

void GgufBuilder::remove(std::string_view key) {
    std::erase_if(file_.values_, [&](const GgufValue& value) { return value.key == key; });
    file_.value_by_key_.clear();
    for (std::size_t i = 0; i < file_.values_.size(); ++i)
        file_.value_by_key_.emplace(file_.values_[i].key, i);
}

std::span<const std::byte> GgufBuilder::keep(MappedFile file) {
    file_.size_bytes_ += file.bytes().size();
    file_.mappings_.push_back(std::move(file));
    return file_.mappings_.back().bytes();
}

std::span<const std::byte> GgufBuilder::keep(std::vector<std::byte> bytes) {
    return file_.made_.emplace_back(std::move(bytes));
}

std::string_view GgufBuilder::keep_text(std::string_view text) {
    const auto bytes = std::as_bytes(std::span(text));
    const auto kept = keep(std::vector(bytes.begin(), bytes.end()));
    return {reinterpret_cast<const char*>(kept.data()), kept.size()};
}

void GgufBuilder::set_value(std::string_view key, GgufType type, bool is_array, std::uint64_t count,
                            std::span<const std::byte> bytes) {
    GgufValue value{.key = {}, .type = type, .is_array = is_array, .count = count, .bytes = {}};
    value.bytes = keep(std::vector(bytes.begin(), bytes.end()));
    if (const auto there = file_.value_by_key_.find(key); there != file_.value_by_key_.end()) {
        value.key = there->first;
        file_.values_[there->second] = value;
        return;
    }
    value.key = keep_text(key);
    file_.value_by_key_.emplace(value.key, file_.values_.size());
    file_.values_.push_back(value);
}

Result<> GgufBuilder::add_tensor(GgufTensor tensor) {
    if (file_.tensor_by_name_.contains(tensor.name)) {
        return invalid_input(
            fmt::format("tensor \"{}\": the name occurs twice", log::escaped(tensor.name)));
    }
    tensor.name = keep_text(tensor.name);
    file_.tensor_by_name_.emplace(tensor.name, file_.tensors_.size());
    file_.tensors_.push_back(tensor);
    return {};
}

Result<> GgufBuilder::append_tensors(GgufFile part) {
    for (const GgufTensor& tensor : part.tensors_)
        if (auto added = add_tensor(tensor); !added) return added;
    file_.size_bytes_ += part.size_bytes_;
    std::move(part.mappings_.begin(), part.mappings_.end(), std::back_inserter(file_.mappings_));
    std::move(part.made_.begin(), part.made_.end(), std::back_inserter(file_.made_));
    return {};
}

}  // namespace troupe::model
