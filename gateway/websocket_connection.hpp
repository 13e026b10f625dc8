// One WebSocket on /v1/responses, from behind the handshake on: reads a ClientStream's messages and
// writes its frames, heartbeats, close codes, the rules for slow and silent clients. Lives on an io
// thread. No coroutine: an idle client costs one pending read.
#pragma once

#include "gateway/server_context.hpp"
#include "gateway/transport.hpp"

namespace troupe::gateway {

struct SocketUpgrade {
    Transport transport;
    Client client;
    bool troupe_protocol = false;  // the subprotocol troupe.v1 was offered
    // A browser's request that is refused is first accepted, so that the page can read why.
    bool refused_credentials = false;
};

// Serves the WebSocket, from now on until it ends.
void serve_websocket(SocketUpgrade upgrade, ServerContext& context);

}  // namespace troupe::gateway
