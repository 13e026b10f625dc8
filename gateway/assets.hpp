// The page, its libraries and the description of the routes, compiled into the program:
// gateway/web, what gateway/web/vendor.txt names, and docs/openapi.json, by URL path. Constant
// data, safe from every thread.
#pragma once

#include <optional>
#include <string_view>

namespace troupe::gateway {

struct Asset {
    std::string_view path;  // as in the URL: "/" or "/assets/app.js"
    std::string_view content_type;
    std::string_view etag;  // quoted, from the content's SHA-256
    std::string_view body;
};

// The asset a URL path names, without query; nullopt where there is none.
[[nodiscard]] std::optional<Asset> find_asset(std::string_view path);

}  // namespace troupe::gateway
