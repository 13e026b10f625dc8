// Small models that a package registry carries, for `troupe pull`, and where the program keeps what
// it has fetched. The table stands in known_models.cpp; a model is added by a row. Constant data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/result.hpp"

namespace troupe::model {

struct KnownModel {
    std::string_view name;  // what people give, to pull and as --model
    std::string_view file;  // its name in the cache
    std::uint64_t bytes = 0;
    std::string_view sha256;   // 64 hex digits
    std::string_view licence;  // as SPDX spells it
    std::string_view package;  // PyPI's, with the version
    std::string_view member;   // the file's path in the package's wheel

    // In $XDG_CACHE_HOME/troupe/models, without which it is ~/.cache.
    [[nodiscard]] std::filesystem::path path() const;
    // A file of the right size is there: it was compared with the sum before it was put there.
    [[nodiscard]] bool is_present() const;
};

[[nodiscard]] std::span<const KnownModel> known_models();

// Null where there is none. The case of letters makes no difference.
[[nodiscard]] const KnownModel* find_known_model(std::string_view name);

// The file or folder that a command line means: a path, or the name of a known model.
// Errors: not_found for a known model that has not been pulled.
[[nodiscard]] Result<std::filesystem::path> find_model(const std::string& argument);

}  // namespace troupe::model
