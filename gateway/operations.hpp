// The routes for whoever runs the server: /health, /ready, /metrics, /version, /props, /slots; and
// short-lived keys.
#pragma once

#include "gateway/http_exchange.hpp"
#include "gateway/routes.hpp"
#include "gateway/server_context.hpp"

namespace troupe::gateway {

[[nodiscard]] HttpReply operations_reply(Page page, const Client& client, ServerContext& context);

// What /ready says while the model loads.
[[nodiscard]] std::string loading_json(const model::LoadProgress& loading);

// POST /v1/realtime/client_secrets, from a client that has shown a key.
[[nodiscard]] HttpReply client_secret_reply(std::string_view body, const Client& client,
                                            ServerContext& context);

}  // namespace troupe::gateway
