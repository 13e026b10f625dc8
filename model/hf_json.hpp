// Reads fields of a JSON object of a Hugging Face folder and keeps the first error, so that whoever
// reads fields reads as a list. A field that is null counts as absent. A value of one thread.
#pragma once

#include <fmt/format.h>
#include <simdjson.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/result.hpp"

namespace troupe::model {

class HfJson {
 public:
    using Found = simdjson::simdjson_result<simdjson::dom::element>;

    HfJson(Found root, std::string_view file) : root_(root), file_(file) {}

    [[nodiscard]] bool has(std::string_view name) const {
        const Found found = root_[name];
        return found.error() == simdjson::SUCCESS && !found.value_unsafe().is_null();
    }
    [[nodiscard]] Found operator[](std::string_view name) const { return root_[name]; }

    std::optional<std::uint32_t> find_u32(std::string_view name) {
        if (!has(name)) return std::nullopt;
        std::int64_t value = -1;
        if (root_[name].get(value) == simdjson::SUCCESS && std::in_range<std::uint32_t>(value))
            return static_cast<std::uint32_t>(value);
        fail(fmt::format("{}: \"{}\" is no count", file_, name));
        return std::nullopt;
    }
    std::optional<float> find_f32(std::string_view name) {
        if (!has(name)) return std::nullopt;
        double value = 0;  // whole numbers are taken, too
        if (root_[name].get(value) == simdjson::SUCCESS && std::isfinite(value))
            return static_cast<float>(value);
        fail(fmt::format("{}: \"{}\" is no number", file_, name));
        return std::nullopt;
    }
    std::optional<std::string_view> find_text(std::string_view name) {
        if (!has(name)) return std::nullopt;
        std::string_view value;
        if (root_[name].get(value) == simdjson::SUCCESS) return value;
        fail(fmt::format("{}: \"{}\" is no text", file_, name));
        return std::nullopt;
    }
    std::optional<bool> find_flag(std::string_view name) {
        if (!has(name)) return std::nullopt;
        bool value = false;
        if (root_[name].get(value) == simdjson::SUCCESS) return value;
        fail(fmt::format("{}: \"{}\" is neither true nor false", file_, name));
        return std::nullopt;
    }
    // The object under `name`, in which nothing is found where there is none. Its errors are this
    // one's, which must outlive it.
    [[nodiscard]] HfJson object(std::string_view name) {
        HfJson inner(root_[name], file_);
        inner.outer_ = this;
        return inner;
    }
    std::uint32_t count(std::string_view name) {
        const auto found = find_u32(name);
        if (!found) fail(fmt::format("{}: \"{}\" is missing", file_, name));
        return found.value_or(1);
    }

    void fail(std::string message, ErrorKind kind = ErrorKind::invalid_input) {
        if (outer_ != nullptr) return outer_->fail(std::move(message), kind);
        if (!error_) error_ = Error{kind, std::move(message)};
    }
    void refuse(std::string_view what) {
        fail(fmt::format("{}: {} is not supported", file_, what), ErrorKind::unsupported);
    }
    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
    Found root_;
    std::string_view file_;
    HfJson* outer_ = nullptr;
    std::optional<Error> error_;
};

}  // namespace troupe::model
