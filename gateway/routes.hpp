// Which route a method and a path name. Pure and constant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/http_exchange.hpp"

namespace troupe::gateway {

enum class Page : std::uint8_t {
    none,
    asset,    // "/" and "/assets/..."
    health,   // alive
    ready,    // able to answer
    metrics,  // Prometheus text
    version,
    props,            // limits and settings; admin
    slots,            // live requests; admin
    trace,            // what the threads did of late; admin
    client_secrets,   // a short-lived key
    responses_socket  // GET /v1/responses: the WebSocket
};

struct RouteMatch {
    Page page = Page::none;  // one of these two is set where the route is known
    std::optional<HttpRoute> exchange;
    std::string id;          // percent-decoded {id} of the path, where it has one
    std::string_view allow;  // the methods this path knows, for 405 and OPTIONS; "" = no such path
    bool method_known = false;
};

// Every method and path, as the table has them.
[[nodiscard]] std::vector<std::pair<std::string_view, std::string_view>> all_routes();

// `path` without query. HEAD is matched as GET.
[[nodiscard]] RouteMatch match_route(std::string_view method, std::string_view path);

// Routes that need no key: the page, its assets and /health.
[[nodiscard]] inline bool is_public(const RouteMatch& match) {
    return match.page == Page::asset || match.page == Page::health;
}

[[nodiscard]] inline bool is_admin(const RouteMatch& match) {
    return match.page == Page::props || match.page == Page::slots || match.page == Page::trace;
}

// Routes that ask something of the model, or about it; not those of kept responses.
[[nodiscard]] inline bool uses_model(const RouteMatch& match) {
    if (!match.exchange) return match.page == Page::responses_socket;
    switch (*match.exchange) {
        case HttpRoute::response_get:
        case HttpRoute::response_delete:
        case HttpRoute::response_input_items:
        case HttpRoute::response_cancel:
            return false;
        default:
            return true;
    }
}

}  // namespace troupe::gateway
