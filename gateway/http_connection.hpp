// One HTTP connection: reads requests, checks who asks, routes, answers, streams server-sent
// events, and hands the socket over where a request becomes a WebSocket. Lives on an io thread.
// Beast's HTTP stands in the .cpp and nowhere else.
#pragma once

#include <boost/asio/ip/tcp.hpp>

#include "gateway/server_context.hpp"

namespace troupe::gateway {

// Serves the connection until it ends. `context` must outlive it.
void serve_connection(boost::asio::ip::tcp::socket socket, ServerContext& context);

}  // namespace troupe::gateway
