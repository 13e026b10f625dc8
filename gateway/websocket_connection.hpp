// One WebSocket on /v1/responses: the handshake, a reader and a writer around a ClientStream,
// heartbeats, close codes, the rules for slow and silent clients. Lives on an io thread. Beast's
// WebSocket stands in the .cpp and nowhere else.
#pragma once

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string>

#include "gateway/server_context.hpp"
#include "gateway/transport.hpp"

namespace troupe::gateway {

struct SocketUpgrade {
    Transport stream;
    boost::beast::http::request<boost::beast::http::string_body> request;
    Client client;
    // A browser's request that is refused is first accepted, so that the page can read why.
    bool refused_credentials = false;
};

// Serves the WebSocket, from now on until it ends.
void serve_websocket(SocketUpgrade upgrade, ServerContext& context);

}  // namespace troupe::gateway
