// Reads a model file's metadata under "<architecture>." and keeps the first error, so that whoever
// reads keys reads as a list. A value of one thread.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "model/gguf.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// Reads keys under "<architecture>." and keeps the first error, so that the caller reads as a list.
class KeyReader {
 public:
    KeyReader(const GgufFile& file, std::string_view architecture)
        : file_(file), architecture_(architecture) {}

    std::optional<std::uint32_t> find_u32(std::string_view name) {
        return take(file_.find_u32(key(name)));
    }
    std::optional<float> find_f32(std::string_view name) { return take(file_.find_f32(key(name))); }
    std::optional<std::string_view> find_string(std::string_view name) {
        return take(file_.find_string(key(name)));
    }

    // In [1, max]; `fallback` 0 makes the key required.
    std::uint32_t count(std::string_view name, std::uint32_t max, std::uint32_t fallback = 0) {
        const auto found = find_u32(name);
        if (!found && fallback == 0) fail(fmt::format("metadata \"{}\" is missing", key(name)));
        const std::uint32_t value = found.value_or(fallback);
        if (value < 1 || value > max) {
            fail(fmt::format("metadata \"{}\" is {}, expected 1 to {}", key(name), value, max));
        }
        return value;
    }

    // A positive finite number; `fallback` 0 makes the key required.
    float positive(std::string_view name, float fallback = 0) {
        const auto found = find_f32(name);
        if (!found && fallback == 0) fail(fmt::format("metadata \"{}\" is missing", key(name)));
        const float value = found.value_or(fallback);
        if (!(value > 0) || !std::isfinite(value)) {
            fail(fmt::format("metadata \"{}\" is {}, expected a positive finite number", key(name),
                             value));
        }
        return value;
    }

    void fail(std::string message, ErrorKind kind = ErrorKind::invalid_input) {
        if (!error_) error_ = Error{kind, std::move(message)};
    }
    [[nodiscard]] std::string key(std::string_view name) const {
        return fmt::format("{}.{}", architecture_, name);
    }
    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
    template <class T>
    std::optional<T> take(const Result<std::optional<T>>& found) {
        if (found) return *found;
        if (!error_) error_ = found.error();
        return std::nullopt;
    }

    const GgufFile& file_;
    std::string_view architecture_;
    std::optional<Error> error_;
};

}  // namespace troupe::model
