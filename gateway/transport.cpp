#include "gateway/transport.hpp"

#include <linux/sockios.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/ioctl.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <string_view>
#include <tuple>

#include "gateway/signal.hpp"

namespace troupe::gateway {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

// That the kernel keeps for a client that reads slowly. What it has not got, a later frame says in
// fewer bytes.
constexpr int kUnsentBytesMax = 64 << 10;

}  // namespace

// The connection itself. Operations of TLS refer to it while they last, so each holds it.
class Transport::Link : public std::enable_shared_from_this<Link> {
 public:
    Link() = default;
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    virtual ~Link() = default;

    virtual tcp::socket& socket() = 0;
    [[nodiscard]] virtual bool encrypted() const = 0;
    virtual asio::awaitable<ErrorCode> handshake() = 0;
    virtual void read(asio::mutable_buffer buffer, Transferred done) = 0;
    virtual void write(const WriteBuffers& buffers, Transferred done) = 0;
    virtual std::size_t write_now(asio::const_buffer bytes, ErrorCode& error) = 0;
    // What TLS says before the TCP connection ends.
    virtual asio::awaitable<void> say_goodbye() = 0;

    // What was read ahead comes first.
    void read_some(asio::mutable_buffer buffer, Transferred done) {
        if (ahead_.empty() || buffer.size() == 0) return read(buffer, std::move(done));
        const std::size_t n = asio::buffer_copy(buffer, asio::buffer(ahead_));
        ahead_.erase(0, n);
        asio::post(socket().get_executor(),
                   [done = std::move(done), n]() mutable { std::move(done)(ErrorCode(), n); });
    }

    static asio::awaitable<void> take_leave(std::shared_ptr<Link> link) {
        co_await link->say_goodbye();
        ErrorCode error;
        link->socket().shutdown(tcp::socket::shutdown_send, error);
        std::array<char, 4096> unread;
        std::size_t n = 0;
        while (!error)
            std::tie(error, n) =
                co_await link->socket().async_read_some(asio::buffer(unread), as_tuple_awaitable);
    }

    void put_back(std::string_view bytes) { ahead_.insert(0, bytes); }

    void close() {
        ErrorCode ignored;
        socket().close(ignored);
    }

 private:
    std::string ahead_;
};

class Transport::PlainLink final : public Link {
 public:
    explicit PlainLink(tcp::socket socket) : socket_(std::move(socket)) {
        ErrorCode ignored;
        socket_.non_blocking(true, ignored);  // for write_now()
    }

    tcp::socket& socket() override { return socket_; }
    [[nodiscard]] bool encrypted() const override { return false; }
    asio::awaitable<ErrorCode> handshake() override { co_return ErrorCode(); }
    void read(asio::mutable_buffer buffer, Transferred done) override {
        socket_.async_read_some(buffer, std::move(done));
    }
    void write(const WriteBuffers& buffers, Transferred done) override {
        socket_.async_write_some(buffers, std::move(done));
    }
    std::size_t write_now(asio::const_buffer bytes, ErrorCode& error) override {
        const std::size_t n = socket_.write_some(asio::buffer(bytes), error);
        if (error == asio::error::would_block) error = {};
        return n;
    }
    asio::awaitable<void> say_goodbye() override { co_return; }

 private:
    tcp::socket socket_;
};

class Transport::TlsLink final : public Link {
 public:
    TlsLink(tcp::socket socket, const TlsContext& tls)
        : stream_(std::move(socket), tls.new_connection()) {}

    tcp::socket& socket() override { return stream_.next_layer(); }
    [[nodiscard]] bool encrypted() const override { return true; }
    asio::awaitable<ErrorCode> handshake() override {
        const auto self = shared_from_this();
        const auto [error] =
            co_await stream_.async_handshake(asio::ssl::stream_base::server, as_tuple_awaitable);
        if (error.category() == asio::error::get_ssl_category() &&
            ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST)
            co_await asio::async_write(socket(), asio::buffer(kPlainHttp), as_tuple_awaitable);
        co_return error;
    }
    void read(asio::mutable_buffer buffer, Transferred done) override {
        stream_.async_read_some(buffer, holding(std::move(done)));
    }
    void write(const WriteBuffers& buffers, Transferred done) override {
        stream_.async_write_some(buffers, holding(std::move(done)));
    }
    std::size_t write_now(asio::const_buffer, ErrorCode&) override { return 0; }
    asio::awaitable<void> say_goodbye() override {
        co_await stream_.async_shutdown(as_tuple_awaitable);
    }

 private:
    static constexpr std::string_view kPlainHttp =
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n"
        "Content-Length: 47\r\n\r\nThis port speaks HTTPS: begin with https://...\n";

    // asio::ssl's operations refer to the stream until they end.
    Transferred holding(Transferred done) {
        auto held = [self = shared_from_this(), done = std::move(done)](
                        ErrorCode error, std::size_t n) mutable { std::move(done)(error, n); };
        return Transferred(std::move(held));
    }

    asio::ssl::stream<tcp::socket> stream_;
};

Transport::Transport(tcp::socket socket, const TlsContext* tls) {
    if (tls == nullptr) {
        link_ = std::make_shared<PlainLink>(std::move(socket));
    } else {
        link_ = std::make_shared<TlsLink>(std::move(socket), *tls);
    }
    ErrorCode ignored;
    link_->socket().set_option(tcp::no_delay(true), ignored);
    using UnsentMax = asio::detail::socket_option::integer<IPPROTO_TCP, TCP_NOTSENT_LOWAT>;
    link_->socket().set_option(UnsentMax(kUnsentBytesMax), ignored);
}

Transport::Transport(Transport&&) noexcept = default;
Transport::~Transport() {
    if (link_ != nullptr) link_->close();
}

Transport::executor_type Transport::get_executor() const {
    return link_->socket().get_executor();
}

std::string Transport::address() const {
    ErrorCode error;
    const auto peer = link_->socket().remote_endpoint(error);
    const int family = peer.data()->sa_family;
    if (error || (family != AF_INET && family != AF_INET6)) return {};
    return peer.address().to_string();
}

bool Transport::is_open() const {
    return link_ != nullptr && link_->socket().is_open();
}

bool Transport::encrypted() const {
    return link_->encrypted();
}

std::size_t Transport::queued_bytes() const {
    int bytes = 0;
    const bool known = is_open() && ::ioctl(link_->socket().native_handle(), SIOCOUTQ, &bytes) == 0;
    return known ? static_cast<std::size_t>(bytes) : 0;
}

asio::awaitable<Transport::ErrorCode> Transport::handshake() {
    return link_->handshake();
}

asio::awaitable<bool> Transport::watch() {
    const auto link = link_;
    std::array<char, 512> bytes;
    const auto [error, n] = co_await async_read_some(asio::buffer(bytes), as_tuple_awaitable);
    if (!error) link->put_back({bytes.data(), n});
    co_return !error || (error == asio::error::operation_aborted && link->socket().is_open());
}

void Transport::stop_watching() {
    ErrorCode ignored;
    link_->socket().cancel(ignored);
}

void Transport::put_back(std::string_view bytes) {
    link_->put_back(bytes);
}

std::size_t Transport::write_now(asio::const_buffer bytes, ErrorCode& error) {
    return link_->write_now(bytes, error);
}

void Transport::finish(Done done) {
    asio::co_spawn(get_executor(), Link::take_leave(link_),
                   [done = std::move(done)](const std::exception_ptr&) mutable {
                       std::move(done)(ErrorCode());
                   });
}

void Transport::close() {
    if (link_ != nullptr) link_->close();
}

void Transport::read_some(asio::mutable_buffer buffer, Transferred done) {
    link_->read_some(buffer, std::move(done));
}

void Transport::write_some(const WriteBuffers& buffers, Transferred done) {
    link_->write(buffers, std::move(done));
}

}  // namespace troupe::gateway
