// The routes for whoever runs the server: /health, /ready, /metrics, /version, /props, /slots.
#pragma once

#include "gateway/http_exchange.hpp"
#include "gateway/routes.hpp"
#include "gateway/server_context.hpp"

namespace troupe::gateway {

[[nodiscard]] HttpReply operations_reply(Page page, ServerContext& context);

}  // namespace troupe::gateway
