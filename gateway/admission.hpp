// Judges a request before anything else is done with it: may it come in, and on whose account.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gateway/routes.hpp"
#include "gateway/server_context.hpp"

namespace troupe::gateway {

// What the judgement looks at: headers as sent (empty where absent) and the peer's address.
struct RequestFacts {
    std::string_view host;
    std::string_view origin;
    std::string_view authorization;
    std::string_view cookie;
    std::string_view subprotocols;  // Sec-WebSocket-Protocol
    std::string_view address;       // without port
    bool preflight = false;         // OPTIONS: a browser asks first, and shows no key yet
};

struct Refusal {
    unsigned status = 403;
    std::string code;
    std::string message;
};

struct Judgement {
    std::optional<Refusal> refusal;
    Client client;
    // With a 401: a browser, which can only read why if the WebSocket is accepted first.
    bool explain_over_socket = false;
};

// The cookie that tells browsers apart, so that people behind one address share fairly.
inline constexpr std::string_view kClientCookie = "troupe_client";

[[nodiscard]] Judgement judge(const RequestFacts& facts, const RouteMatch& route,
                              const ServerSettings& settings,
                              const EphemeralKeys& ephemeral_keys = {},
                              runtime::TimePoint now = {});

// Why this client may not use the model: its key names others. Nothing where it may.
[[nodiscard]] std::optional<Refusal> judge_model(const Client& client,
                                                 const ServerSettings& settings,
                                                 const ServedModel& served);

// The client that shows this key, short-lived or not; nothing where it is none of the server's.
[[nodiscard]] std::optional<Client> client_of_key(std::string_view shown,
                                                  const ServerSettings& settings,
                                                  const EphemeralKeys& ephemeral_keys,
                                                  runtime::TimePoint now);

// The subprotocol to answer with: "troupe.v1", else "realtime", else none. Never one with a secret.
[[nodiscard]] std::string_view chosen_subprotocol(std::string_view offered);

// The token of "openai-insecure-api-key.TOKEN" among the offered subprotocols.
[[nodiscard]] std::optional<std::string_view> subprotocol_token(std::string_view offered);

// {"error": {"message", "type", "param", "code"}}
[[nodiscard]] std::string error_body(unsigned status, std::string_view code,
                                     std::string_view message);

}  // namespace troupe::gateway
