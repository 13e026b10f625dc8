// One TCP connection, plain or over TLS: of one type either way, so that Beast's templates are
// compiled once. An AsyncStream as Beast and Asio want it. Lives on an io thread and starts no
// coroutine of its own but to end; who gives up on a peer calls close(), and what is at work then
// ends with an error.
#pragma once

#include <array>
#include <boost/asio/any_completion_handler.hpp>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "gateway/tls.hpp"

namespace troupe::gateway {

class Transport {
 public:
    using executor_type = boost::asio::any_io_executor;
    using ErrorCode = boost::system::error_code;
    using Transferred = boost::asio::any_completion_handler<void(ErrorCode, std::size_t)>;
    using Done = boost::asio::any_completion_handler<void(ErrorCode)>;

    // Buffers of one write; more than these wait for the next.
    class WriteBuffers {
     public:
        template <class Buffers>
        explicit WriteBuffers(const Buffers& buffers) {
            const auto end = boost::asio::buffer_sequence_end(buffers);
            for (auto it = boost::asio::buffer_sequence_begin(buffers);
                 it != end && count_ < buffers_.size(); ++it)
                if (boost::asio::const_buffer buffer(*it); buffer.size() > 0)
                    buffers_[count_++] = buffer;
        }
        using value_type = boost::asio::const_buffer;
        [[nodiscard]] const value_type* begin() const { return buffers_.data(); }
        [[nodiscard]] const value_type* end() const { return buffers_.data() + count_; }

     private:
        std::array<value_type, 16> buffers_;
        std::size_t count_ = 0;
    };

    // Plain where `tls` is null.
    Transport(boost::asio::ip::tcp::socket socket, const TlsContext* tls);
    Transport(Transport&&) noexcept;
    Transport& operator=(Transport&&) = delete;
    ~Transport();

    [[nodiscard]] executor_type get_executor() const;
    // The peer's, without port; empty where it has none or is gone already.
    [[nodiscard]] std::string address() const;
    // False once it was closed, or has been moved from.
    [[nodiscard]] bool is_open() const;
    [[nodiscard]] bool encrypted() const;
    // What was written and the peer's kernel has not taken. While a write is at work this changes
    // as soon as the peer takes anything.
    [[nodiscard]] std::size_t queued_bytes() const;

    // First of all. Nothing to do where it is plain; a peer that speaks plain HTTP to a TLS port is
    // told so.
    [[nodiscard]] boost::asio::awaitable<ErrorCode> handshake();

    // Until bytes come, which the next read gets, or the peer is gone: false then. stop_watching()
    // makes it true.
    [[nodiscard]] boost::asio::awaitable<bool> watch();
    void stop_watching();

    // Bytes that were read too many, for the next read. Not while one is at work.
    void put_back(std::string_view bytes);

    // What the kernel takes at once of these bytes, without a write at work: nothing over TLS.
    [[nodiscard]] std::size_t write_now(boost::asio::const_buffer bytes, ErrorCode& error);

    // Says that nothing more will be sent, and takes what still comes until the peer agrees. (What
    // is left unread would make the kernel reset the connection, and the last reply with it.)
    template <class Token>
    auto async_finish(Token&& token) {
        return boost::asio::async_initiate<Token, void(ErrorCode)>(
            [this](auto handler) { finish(Done(std::move(handler))); }, token);
    }
    // Now, whatever is at work.
    void close();

    template <class Buffers, class Token>
    auto async_read_some(const Buffers& buffers, Token&& token) {
        return boost::asio::async_initiate<Token, void(ErrorCode, std::size_t)>(
            [this](auto handler, boost::asio::mutable_buffer buffer) {
                read_some(buffer, Transferred(std::move(handler)));
            },
            token, first_of(buffers));
    }
    template <class Buffers, class Token>
    auto async_write_some(const Buffers& buffers, Token&& token) {
        return boost::asio::async_initiate<Token, void(ErrorCode, std::size_t)>(
            [this](auto handler, const WriteBuffers& those) {
                write_some(those, Transferred(std::move(handler)));
            },
            token, WriteBuffers(buffers));
    }

 private:
    class Link;
    class PlainLink;
    class TlsLink;

    template <class Buffers>
    static boost::asio::mutable_buffer first_of(const Buffers& buffers) {
        const auto end = boost::asio::buffer_sequence_end(buffers);
        for (auto it = boost::asio::buffer_sequence_begin(buffers); it != end; ++it)
            if (boost::asio::mutable_buffer buffer(*it); buffer.size() > 0) return buffer;
        return {};
    }

    void read_some(boost::asio::mutable_buffer buffer, Transferred done);
    void write_some(const WriteBuffers& buffers, Transferred done);
    void finish(Done done);

    std::shared_ptr<Link> link_;
};

}  // namespace troupe::gateway
