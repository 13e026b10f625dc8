#include "gateway/assets.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "gateway/assets_table.hpp"

namespace troupe::gateway {
namespace {

struct TypeOfSuffix {
    std::string_view suffix;
    std::string_view content_type;
};

constexpr std::array kTypes{
    TypeOfSuffix{".html", "text/html; charset=utf-8"},
    TypeOfSuffix{".js", "text/javascript; charset=utf-8"},
    TypeOfSuffix{".css", "text/css; charset=utf-8"},
    TypeOfSuffix{".svg", "image/svg+xml"},
    TypeOfSuffix{".png", "image/png"},
    TypeOfSuffix{".ico", "image/x-icon"},
    TypeOfSuffix{".woff2", "font/woff2"},
    TypeOfSuffix{".woff", "font/woff"},
    TypeOfSuffix{".ttf", "font/ttf"},
    TypeOfSuffix{".json", "application/json"},
    TypeOfSuffix{".webmanifest", "application/manifest+json"},
};

std::string_view content_type_of(std::string_view file_name) {
    for (const auto& [suffix, type] : kTypes)
        if (file_name.ends_with(suffix)) return type;
    return "application/octet-stream";
}

}  // namespace

std::optional<Asset> find_asset(std::string_view path) {
    constexpr std::string_view prefix = "/assets/";
    std::string_view name = "index.html";
    if (path == "/openapi.json") {
        name = path.substr(1);
    } else if (path != "/") {
        if (!path.starts_with(prefix)) return std::nullopt;
        name = path.substr(prefix.size());
        if (name == "index.html" || name == "openapi.json") return std::nullopt;  // one address
    }
    const auto* end = std::end(kEmbeddedFiles);
    const auto* file = std::lower_bound(
        std::begin(kEmbeddedFiles), end, name,
        [](const EmbeddedFile& f, std::string_view wanted) { return f.name < wanted; });
    if (file == end || file->name != name) return std::nullopt;
    return Asset{path,
                 content_type_of(name),
                 file->etag,
                 {file->begin, static_cast<std::size_t>(file->end - file->begin)}};
}

}  // namespace troupe::gateway
