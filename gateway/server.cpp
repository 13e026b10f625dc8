#include "gateway/server.hpp"

#include <fmt/format.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <vector>

#include "gateway/http_connection.hpp"
#include "gateway/signal.hpp"
#include "runtime/base/log.hpp"

namespace troupe::gateway {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr std::chrono::milliseconds kDrainPause{50};
constexpr std::size_t kFewConnections = 200;  // all of them may be looked at in one go
// Of more, so that no stream waits for long: a ping takes as much time as ten tokens.
constexpr std::chrono::milliseconds kSweepPause{2};
constexpr std::size_t kLooksAtOnce = 16;

}  // namespace

class Server::Impl {
 public:
    Impl(runtime::Lane& io, ServerSettings settings, const model::LoadProgress& loading)
        : io_(io),
          settings_(std::move(settings)),
          encrypted_(settings_.tls != nullptr),
          context_{settings_, io, io.clock(), metrics_, loading},
          acceptor_(io.executor()),
          sweep_timer_(io.executor()) {}

    Result<void> bind() {
        boost::system::error_code error;
        tcp::resolver resolver(io_.executor());
        const auto found = resolver.resolve(settings_.host, std::to_string(settings_.port),
                                            tcp::resolver::passive, error);
        if (error || found.empty())
            return Error{ErrorKind::invalid_input,
                         fmt::format("--host {} is no address of this machine ({})", settings_.host,
                                     error.message())};
        const tcp::endpoint endpoint = found.begin()->endpoint();
        if (settings_.keys.empty() && !endpoint.address().is_loopback())
            return Error{
                ErrorKind::invalid_input,
                fmt::format("--host {} can be reached from other machines, and no keys are "
                            "set: give --api-keys FILE, or serve on 127.0.0.1",
                            settings_.host)};
        for (const std::string& proxy : settings_.trusted_proxies)
            if (asio::ip::make_address(proxy, error); error)
                return invalid_input(fmt::format("--trusted-proxy {} is no IP address", proxy));
        acceptor_.open(endpoint.protocol(), error);
        if (!error) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
        if (!error) acceptor_.bind(endpoint, error);
        if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
        if (error == asio::error::address_in_use)
            return Error{ErrorKind::io,
                         fmt::format("port {} is in use by another program: choose another one "
                                     "with --port",
                                     settings_.port)};
        if (error)
            return Error{ErrorKind::io,
                         fmt::format("cannot listen on {} port {}: {}", settings_.host,
                                     settings_.port, error.message())};
        local_ = acceptor_.local_endpoint();
        return {};
    }

    // Accepts until the acceptor is closed. When descriptors run out it waits rather than spins.
    asio::awaitable<void> accept_loop() {
        std::chrono::milliseconds pause{5};
        while (acceptor_.is_open()) {
            auto [error, socket] = co_await acceptor_.async_accept(as_tuple_awaitable);
            if (error == asio::error::operation_aborted) co_return;
            if (error) {
                log::warn("cannot accept a connection: {}", error.message());
                asio::steady_timer timer(io_.executor(), pause);
                co_await timer.async_wait(as_tuple_awaitable);
                pause = std::min(pause * 2, std::chrono::milliseconds(1000));
                continue;
            }
            pause = std::chrono::milliseconds(5);
            if (context_.connections.size() >= settings_.connections_max) {
                socket.close(error);
                continue;
            }
            serve_connection(std::move(socket), context_);
        }
    }

    // Looks at each connection when it is due; where there are many, at a few at once.
    asio::awaitable<void> sweep_loop() {
        while (!stopped_) {
            sweep_timer_.expires_after(until_sweep(io_.now()));
            co_await sweep_timer_.async_wait(as_tuple_awaitable);
            const auto now = io_.now();
            if (context_.draining) {
                context_.connections.for_each([&](Connection& c) { c.tick(now); });
            } else {
                context_.connections.tick(now, are_few() ? kFewConnections : kLooksAtOnce);
            }
            if (serving_ && now >= hub_tick_at_) {
                hub_tick_at_ = now + settings_.look_interval;
                serving_->hub.tick(now);
            }
            tell_if_drained();
        }
    }

    bool are_few() const { return context_.connections.size() <= kFewConnections; }
    runtime::Duration until_sweep(runtime::TimePoint now) const {
        if (context_.draining) return kDrainPause;
        if (are_few()) return settings_.look_interval;
        const auto due = std::min(context_.connections.earliest(), now + settings_.look_interval);
        return std::max<runtime::Duration>(due - now, kSweepPause);
    }

    void tell_if_drained() {
        if (drained_ && context_.connections.empty()) std::exchange(drained_, nullptr)();
    }

    runtime::Lane& io_;
    ServerSettings settings_;
    const bool encrypted_;
    Metrics metrics_;
    ServerContext context_;
    std::optional<Serving> serving_;
    std::function<void()> drained_;
    tcp::acceptor acceptor_;
    tcp::endpoint local_;
    asio::steady_timer sweep_timer_;
    runtime::TimePoint hub_tick_at_{};
    bool stopped_ = false;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::listen(runtime::Lane& io, ServerSettings settings,
                                               const model::LoadProgress& loading) {
    auto impl = std::make_unique<Impl>(io, std::move(settings), loading);
    if (auto bound = impl->bind(); !bound) return bound.error();
    return std::unique_ptr<Server>(new Server(std::move(impl)));
}

std::uint16_t Server::port() const {
    return impl_->local_.port();
}

std::string Server::address() const {
    const auto address = impl_->local_.address();
    const std::string host =
        address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
    return fmt::format("{}://{}:{}", impl_->encrypted_ ? "https" : "http", host, port());
}

void Server::start() {
    impl_->io_.spawn("listener", impl_->accept_loop());
    impl_->io_.spawn("sweeper", impl_->sweep_loop());
}

void Server::ready(const Serving& serving) {
    asio::post(impl_->io_.executor(), [this, serving] {
        impl_->serving_.emplace(serving);
        impl_->context_.serving = &*impl_->serving_;
    });
}

void Server::replace_keys(KeyRing keys) {
    asio::post(impl_->io_.executor(), [this, keys = std::move(keys)]() mutable {
        impl_->settings_.keys = std::move(keys);
        impl_->context_.connections.for_each([](Connection& c) { c.keys_changed(); });
    });
}

void Server::replace_certificate(std::shared_ptr<const TlsContext> tls) {
    asio::post(impl_->io_.executor(),
               [this, tls = std::move(tls)]() mutable { impl_->settings_.tls = std::move(tls); });
}

void Server::drain(std::function<void()> drained) {
    asio::post(impl_->io_.executor(), [this, drained = std::move(drained)]() mutable {
        impl_->context_.draining = true;
        impl_->drained_ = std::move(drained);
        boost::system::error_code ignored;
        impl_->acceptor_.close(ignored);
        impl_->context_.connections.for_each([](Connection& c) { c.drain(); });
        impl_->tell_if_drained();
    });
}

void Server::stop() {
    asio::post(impl_->io_.executor(), [this] {
        impl_->stopped_ = true;
        impl_->context_.draining = true;
        boost::system::error_code ignored;
        impl_->acceptor_.close(ignored);
        impl_->sweep_timer_.cancel();
        impl_->context_.connections.for_each([](Connection& c) { c.abort(); });
    });
}

}  // namespace troupe::gateway
