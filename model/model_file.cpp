#include "model/model_file.hpp"

#include <algorithm>
#include <system_error>

#include "model/gguf_split.hpp"
#include "model/hf_folder.hpp"

namespace troupe::model {
namespace {

// "name-00001-of-00003" without what the number of a part adds.
std::string without_part(std::string name) {
    constexpr std::string_view pattern = "-00000-of-00000";
    if (name.size() <= pattern.size()) return name;
    const std::string_view end = std::string_view(name).substr(name.size() - pattern.size());
    const bool is_part = std::equal(
        end.begin(), end.end(), pattern.begin(),
        [](char c, char wanted) { return wanted == '0' ? c >= '0' && c <= '9' : c == wanted; });
    if (is_part) name.resize(name.size() - pattern.size());
    return name;
}

}  // namespace

Result<GgufFile> open_model(const std::filesystem::path& path) {
    std::error_code unknown;  // whoever opens it says what is wrong
    return std::filesystem::is_directory(path, unknown) ? open_hf_folder(path)
                                                        : open_split_gguf(path);
}

std::string model_name(const std::filesystem::path& path) {
    std::error_code unknown;
    if (!std::filesystem::is_directory(path, unknown)) return without_part(path.stem().string());
    const auto whole = std::filesystem::absolute(path, unknown).lexically_normal();
    return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

}  // namespace troupe::model
