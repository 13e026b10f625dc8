// The listening socket and all connections behind it. Everything but the constructor and the three
// notices runs on the io lane that it is given.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gateway/server_context.hpp"
#include "runtime/base/result.hpp"
#include "runtime/lane.hpp"

namespace troupe::gateway {

class Server {
 public:
    // Binds and listens; refuses a public address without keys. The error says what to do. `io` and
    // `loading`, of which clients are told until ready(), must outlive the server.
    [[nodiscard]] static Result<std::unique_ptr<Server>> listen(runtime::Lane& io,
                                                                ServerSettings settings,
                                                                const model::LoadProgress& loading);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    [[nodiscard]] std::uint16_t port() const;
    // "http://127.0.0.1:8080", or https
    [[nodiscard]] std::string address() const;

    // From any thread: accepts connections; routes that need the model answer 503 until ready().
    void start();
    // From any thread: the model is loaded. What `serving` names must outlive the server's lane,
    // and its hub lives on that lane.
    void ready(const Serving& serving);
    // From any thread: takes these keys from now on. A server that has keys never goes without.
    void replace_keys(KeyRing keys);
    // From any thread: new connections begin with this certificate, those that are open keep
    // theirs. For a server that has one.
    void replace_certificate(std::shared_ptr<const TlsContext> tls);
    // From any thread: accepts nobody, lets running answers finish, closes what is idle; calls
    // `drained` on the io lane once no connection is left.
    void drain(std::function<void()> drained);
    // From any thread: closes everything now.
    void stop();

 private:
    class Impl;
    explicit Server(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::gateway
