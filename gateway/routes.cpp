#include "gateway/routes.hpp"

#include <array>
#include <charconv>

namespace troupe::gateway {
namespace {

struct Route {
    std::string_view method;
    std::string_view path;  // "{id}" stands for one segment, a final "*" for any rest
    Page page = Page::none;
    std::optional<HttpRoute> exchange;
};

// Within a path, routes stand together. The literal path stands before the one with {id}.
constexpr std::array kRoutes{
    Route{"GET", "/", Page::asset, {}},
    Route{"GET", "/assets/*", Page::asset, {}},
    Route{"GET", "/openapi.json", Page::asset, {}},
    Route{"GET", "/health", Page::health, {}},
    Route{"GET", "/ready", Page::ready, {}},
    Route{"GET", "/metrics", Page::metrics, {}},
    Route{"GET", "/version", Page::version, {}},
    Route{"GET", "/props", Page::props, {}},
    Route{"GET", "/slots", Page::slots, {}},
    Route{"GET", "/debug/trace", Page::trace, {}},
    Route{"POST", "/v1/realtime/client_secrets", Page::client_secrets, {}},
    Route{"GET", "/v1/responses", Page::responses_socket, {}},
    Route{"POST", "/v1/responses", Page::none, HttpRoute::responses},
    Route{"POST", "/v1/responses/input_tokens", Page::none, HttpRoute::response_input_tokens},
    Route{"GET", "/v1/responses/{id}", Page::none, HttpRoute::response_get},
    Route{"DELETE", "/v1/responses/{id}", Page::none, HttpRoute::response_delete},
    Route{"POST", "/v1/responses/{id}/cancel", Page::none, HttpRoute::response_cancel},
    Route{"GET", "/v1/responses/{id}/input_items", Page::none, HttpRoute::response_input_items},
    Route{"POST", "/v1/chat/completions", Page::none, HttpRoute::chat_completions},
    Route{"POST", "/v1/completions", Page::none, HttpRoute::completions},
    Route{"GET", "/v1/models", Page::none, HttpRoute::models},
    Route{"GET", "/v1/models/{id}", Page::none, HttpRoute::model_get},
    Route{"POST", "/tokenize", Page::none, HttpRoute::tokenize},
    Route{"POST", "/detokenize", Page::none, HttpRoute::detokenize},
    Route{"POST", "/apply-template", Page::none, HttpRoute::apply_template},
    Route{"GET", "/tokenizer_info", Page::none, HttpRoute::tokenizer_info},
};

std::string percent_decoded(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        unsigned char byte = 0;
        if (text[i] == '%' && i + 2 < text.size() &&
            std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16).ptr ==
                text.data() + i + 3) {
            out += static_cast<char>(byte);
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

bool path_matches(std::string_view pattern, std::string_view path, std::string& id) {
    if (pattern.ends_with('*')) return path.starts_with(pattern.substr(0, pattern.size() - 1));
    const auto brace = pattern.find("{id}");
    if (brace == std::string_view::npos) return pattern == path;
    const auto before = pattern.substr(0, brace);
    const auto after = pattern.substr(brace + 4);
    if (path.size() <= before.size() + after.size() || !path.starts_with(before) ||
        !path.ends_with(after))
        return false;
    const auto segment = path.substr(before.size(), path.size() - before.size() - after.size());
    if (segment.find('/') != std::string_view::npos) return false;
    id = percent_decoded(segment);
    return true;
}

// The Allow header of a path: built from the table, so it cannot disagree with it.
std::string_view allowed_methods(bool get, bool post, bool erase) {
    if (get && post) return "GET, HEAD, POST, OPTIONS";
    if (get && erase) return "GET, HEAD, DELETE, OPTIONS";
    if (get) return "GET, HEAD, OPTIONS";
    return "POST, OPTIONS";
}

}  // namespace

std::vector<std::pair<std::string_view, std::string_view>> all_routes() {
    std::vector<std::pair<std::string_view, std::string_view>> all;
    for (const Route& route : kRoutes)
        all.emplace_back(route.method, route.path);
    return all;
}

RouteMatch match_route(std::string_view method, std::string_view path) {
    if (method == "HEAD") method = "GET";
    RouteMatch match;
    std::string_view pattern;
    bool get = false, post = false, erase = false;
    for (const Route& route : kRoutes) {
        std::string id;
        if (!pattern.empty() ? route.path != pattern : !path_matches(route.path, path, id))
            continue;
        if (pattern.empty()) match.id = std::move(id);
        pattern = route.path;
        get |= route.method == "GET";
        post |= route.method == "POST";
        erase |= route.method == "DELETE";
        if (route.method == method) {
            match.page = route.page;
            match.exchange = route.exchange;
            match.method_known = true;
        }
    }
    if (!pattern.empty()) match.allow = allowed_methods(get, post, erase);
    return match;
}

}  // namespace troupe::gateway
