// Starts a connection's coroutine, which keeps the connection alive until it ends. What it throws
// is a bug: it is logged and ends that connection alone.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <exception>
#include <memory>

#include "runtime/base/log.hpp"

namespace troupe::gateway {

template <class Connection>
void spawn_connection(const boost::asio::any_io_executor& executor,
                      std::shared_ptr<Connection> connection) {
    auto running = connection->run();
    boost::asio::co_spawn(executor, std::move(running),
                          [connection = std::move(connection)](const std::exception_ptr& error) {
                              if (!error) return;
                              try {
                                  std::rethrow_exception(error);
                              } catch (const std::exception& e) {
                                  log::error("a connection failed and was closed: {}", e.what());
                              }
                          });
}

}  // namespace troupe::gateway
