#include "gateway/websocket_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>

#include "gateway/admission.hpp"
#include "gateway/signal.hpp"
#include "gateway/spawn_connection.hpp"

namespace troupe::gateway {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;
using std::chrono::duration_cast;
using std::chrono::seconds;

constexpr std::uint16_t kAuthRefused = 4401;
constexpr std::uint16_t kForbidden = 4403;
constexpr std::uint16_t kAuthTimeout = 4408;
constexpr std::uint16_t kTooMany = 4429;
constexpr std::size_t kFirstReadBytes = 64;

class WebSocketConnection final : public Connection,
                                  public std::enable_shared_from_this<WebSocketConnection> {
 public:
    WebSocketConnection(SocketUpgrade upgrade, ServerContext& context)
        : context_(context),
          socket_(std::in_place, std::move(upgrade.stream)),
          request_(std::move(upgrade.request)),
          client_(upgrade.client),
          refused_credentials_(upgrade.refused_credentials),
          opened_(context.clock.now()),
          last_message_(opened_),
          heard_at_(opened_ - context.next_head_start()),
          taken_at_(opened_) {
        context_.metrics.connection_opened();
    }
    ~WebSocketConnection() override {
        context_.connections.remove(*this);
        leave_account();
        context_.metrics.connection_closed();
    }

    asio::awaitable<void> run() {
        if (!co_await handshake()) co_return;
        if (refused_credentials_) {
            co_await refuse_credentials();
            co_return;
        }
        const bool room = join_account();
        make_stream();
        if (!room) close({kTooMany, "too many connections of one client"});
        wake_writer();
        co_await read_messages();
        leave();
    }

    [[nodiscard]] std::size_t unread_bytes() const override {
        return stream_ ? stream_->pending_bytes() : 0;
    }

    runtime::TimePoint tick(runtime::TimePoint now) override {
        check_times(now);
        return next_look(now);
    }
    // An idle one is left alone until its time is over.
    runtime::TimePoint next_look(runtime::TimePoint now) const {
        const auto& settings = context_.settings;
        const auto soon = now + settings.look_interval;
        if (has_writer_ || !client_.authenticated) return soon;
        return std::max(soon, std::min({opened_ + settings.life_max,
                                        last_message_ + settings.idle_timeout, next_heartbeat()}));
    }

    void keys_changed() override {
        if (!client_.key) return;
        if (context_.settings.keys.find(*client_.key) == nullptr)
            close({kAuthRefused, "the API key is no longer valid"});
        check_model();
    }

    void drain() override {
        draining_ = true;
        if (stream_) stream_->drain();
        check_times(context_.clock.now());
        wake_writer();
    }

    // Closing the socket ends what is at work on it. But Beast has cases in which a read waits for
    // a close and that for the read, such as a malformed frame right behind a message for which we
    // close. These end with the stream alone.
    void abort() override {
        if (!socket_) return;
        socket_->next_layer().close();
        asio::post(socket_->get_executor(), [self = shared_from_this()] {
            self->leave();
            self->socket_.reset();
        });
    }

 private:
    void leave() {
        if (std::exchange(gone_, true)) return;
        if (stream_) stream_->on_disconnect();
        output_ready_.notify();
    }

    void check_times(runtime::TimePoint now) {
        if (!stream_ || !socket_) return;
        const auto& settings = context_.settings;
        if (writing_ && !takes_anything(now)) {
            context_.metrics.slow_client_closed();
            return abort();
        }
        if (closes_since_ && now - *closes_since_ > settings.handshake_timeout) return abort();
        if (closing_) return;
        if (!client_.authenticated && now - opened_ > settings.auth_timeout)
            return close({kAuthTimeout, "no troupe:auth came in time"});
        if (has_writer_ && unread_bytes() > settings.pending_bytes_max) {
            context_.metrics.slow_client_closed();
            leaves_unread_ = true;
            return close({websocket::close_code::try_again_later, "the client reads too slowly"});
        }
        check_heartbeat(now);
        if (has_writer_ && !stream_->idle()) return;
        if (draining_)
            return close({websocket::close_code::service_restart, "the server restarts"});
        if (now - opened_ >= settings.life_max)
            return close({websocket::close_code::going_away, "connections last an hour at most"});
        if (now - last_message_ >= settings.idle_timeout)
            close({websocket::close_code::going_away, "nothing happened for ten minutes"});
    }

    // Who has not been heard for a while is pinged, and given up when nothing comes of it.
    void check_heartbeat(runtime::TimePoint now) {
        if (now < next_heartbeat()) return;
        if (pinged_at_) return abort();
        pinged_at_ = now;
        socket_->async_ping({}, [self = shared_from_this()](const boost::system::error_code&) {});
    }
    runtime::TimePoint next_heartbeat() const {
        return pinged_at_.value_or(heard_at_) + context_.settings.heartbeat;
    }
    void hear() {
        heard_at_ = context_.clock.now();
        pinged_at_.reset();
    }

    asio::awaitable<bool> handshake() {
        const auto& settings = context_.settings;
        websocket::stream_base::timeout timeout{};
        timeout.handshake_timeout = settings.handshake_timeout;
        timeout.idle_timeout = websocket::stream_base::none();
        socket_->set_option(timeout);
        socket_->control_callback([this](websocket::frame_type, beast::string_view) { hear(); });
        websocket::permessage_deflate no_deflate;
        no_deflate.server_enable = false;
        socket_->set_option(no_deflate);
        const auto limit = client_.authenticated
                               ? context_.serving->model.limits.message_bytes_max
                               : context_.serving->model.limits.unauthenticated_bytes_max;
        socket_->read_message_max(limit);
        socket_->auto_fragment(false);
        socket_->write_buffer_bytes(4096);
        const auto offered = request_[beast::http::field::sec_websocket_protocol];
        const std::string chosen(chosen_subprotocol({offered.data(), offered.size()}));
        troupe_protocol_ = chosen == "troupe.v1";
        socket_->set_option(
            websocket::stream_base::decorator([chosen](websocket::response_type& response) {
                response.set(beast::http::field::server, "troupe");
                if (!chosen.empty())
                    response.set(beast::http::field::sec_websocket_protocol, chosen);
            }));
        const auto [error] = co_await socket_->async_accept(request_, as_tuple_awaitable);
        request_ = {};
        co_return !error && !gone_;
    }

    // A page cannot read the status of a refused handshake; it can read this.
    asio::awaitable<void> refuse_credentials() {
        constexpr std::string_view message =
            R"({"type":"error","status":401,"code":"invalid_api_key",)"
            R"("message":"the API key is not one of this server's","param":null,)"
            R"("sequence_number":0,)"
            R"("error":{"type":"authentication_error","code":"invalid_api_key",)"
            R"("message":"the API key is not one of this server's","param":null}})";
        // Named, because GCC 12 destroys a braced temporary twice when it stands in a co_await.
        const websocket::close_reason reason(static_cast<websocket::close_code>(kAuthRefused),
                                             "invalid API key");
        socket_->text(true);
        co_await socket_->async_write(asio::buffer(message), as_tuple_awaitable);
        if (gone_) co_return;
        co_await socket_->async_close(reason, as_tuple_awaitable);
    }

    void make_stream() {
        ClientContext who;
        who.principal = client_.principal;
        who.authenticated = client_.authenticated;
        who.troupe_protocol = troupe_protocol_;
        who.connection_id = "conn_" + random_hex(12);
        Authenticate authenticate;
        if (!client_.authenticated)
            authenticate = [this](std::string_view token) { return authenticated(token); };
        stream_.emplace(
            context_.serving->hub, context_.serving->model, std::move(who),
            [this] { wake_writer(); }, std::move(authenticate));
    }

    std::optional<actors::Principal> authenticated(std::string_view token) {
        const auto client =
            client_of_key(token, context_.settings, context_.ephemeral_keys, context_.clock.now());
        if (!client) return std::nullopt;
        leave_account();
        client_ = *client;
        socket_->read_message_max(context_.serving->model.limits.message_bytes_max);
        if (!join_account()) close({kTooMany, "too many connections of one client"});
        check_model();
        return client_.principal;
    }

    void check_model() {
        if (judge_model(client_, context_.settings, context_.serving->model))
            close({kForbidden, "the API key is for other models"});
    }

    // Whether the client has taken some of what is being written within the write timeout.
    bool takes_anything(runtime::TimePoint now) {
        if (const auto queued = socket_->next_layer().queued_bytes(); queued != queued_bytes_) {
            queued_bytes_ = queued;
            taken_at_ = now;
        }
        return now - taken_at_ <= context_.settings.write_timeout;
    }

    // Counts this socket to its principal. False where the principal has too many.
    bool join_account() {
        const auto most = client_.keyed ? context_.settings.sockets_per_client_max
                                        : context_.settings.sockets_per_address_max;
        account_ = client_.principal.id;
        return ++context_.sockets_of_principal[*account_] <= most;
    }

    void leave_account() {
        if (!account_) return;
        const auto it = context_.sockets_of_principal.find(*account_);
        if (--it->second == 0) context_.sockets_of_principal.erase(it);
        account_.reset();
    }

    // Awaits what `start` starts. Beast's own awaitables would each own the stream; these end with
    // it.
    template <class... Values, class Start>
    auto on_socket(Start start) {
        return asio::async_initiate<decltype(as_tuple_awaitable),
                                    void(boost::system::error_code, Values...)>(
            [this, start](auto done) { start(*socket_, std::move(done)); }, as_tuple_awaitable);
    }

    asio::awaitable<void> read_messages() {
        while (true) {
            // Waits with room for the first bytes only: Beast would hold 1,536 for each idle
            // client.
            beast::flat_buffer buffer;
            std::size_t most = kFirstReadBytes;
            do {
                const auto [error, n] =
                    co_await on_socket<std::size_t>([&](auto& socket, auto done) {
                        socket.async_read_some(buffer, most, std::move(done));
                    });
                if (error || gone_) co_return;
                hear();
                most = 0;  // as Beast likes
            } while (!socket_->is_message_done());
            if (closing_) continue;
            if (!socket_->got_text()) {
                close({websocket::close_code::unknown_data, "messages are text, not binary"});
            } else if (!take_message_permit()) {
                close({kTooMany, fmt::format("more than {} messages a minute",
                                             context_.settings.messages_per_minute)});
            } else {
                last_message_ = context_.clock.now();
                const std::string_view text(static_cast<const char*>(buffer.data().data()),
                                            buffer.size());
                if (auto reason = stream_->on_message(text)) close(std::move(*reason));
            }
            wake_writer();
        }
    }

    // A bucket of messages_burst permits that refills at messages_per_minute.
    bool take_message_permit() {
        const double burst = context_.settings.messages_burst;
        if (permits_ < 0) permits_ = burst;
        const auto now = context_.clock.now();
        const double minutes =
            std::chrono::duration<double, std::ratio<60>>(now - permits_at_).count();
        permits_ = std::min(burst, permits_ + minutes * context_.settings.messages_per_minute);
        permits_at_ = now;
        if (permits_ < 1) return false;
        permits_ -= 1;
        return true;
    }

    // There is a writer while there is something to write or to wait for; an idle client costs
    // none.
    void wake_writer() {
        if (has_writer_) return output_ready_.notify();
        if (gone_ || !stream_) return;
        has_writer_ = true;
        context_.connections.look(*this, context_.clock.now() + context_.settings.look_interval);
        auto writing = write_frames();
        asio::co_spawn(socket_->get_executor(), std::move(writing),
                       [self = shared_from_this()](const std::exception_ptr&) {});
    }

    // One write in flight; everything that is pending by then becomes the next frame.
    asio::awaitable<void> write_frames() {
        socket_->text(true);
        std::string frame;
        while (!gone_) {
            frame.clear();
            if (!leaves_unread_ && stream_->next_frame(frame)) {
                writing_ = true;
                taken_at_ = context_.clock.now();
                const auto [error, n] =
                    co_await on_socket<std::size_t>([&](auto& socket, auto done) {
                        socket.async_write(asio::buffer(frame), std::move(done));
                    });
                writing_ = false;
                if (error) co_return;
            } else if (closing_) {
                closes_since_ = context_.clock.now();
                co_await on_socket<>([&](auto& socket, auto done) {
                    socket.async_close(reason_of(*closing_), std::move(done));
                });
                co_return;
            } else {
                if (draining_) check_times(context_.clock.now());
                if (closing_) continue;
                if (stream_->idle()) {
                    has_writer_ = false;
                    co_return;
                }
                co_await output_ready_.wait();
            }
        }
    }

    void close(Close reason) {
        if (closing_) return;
        closing_ = std::move(reason);
        wake_writer();
    }

    static websocket::close_reason reason_of(const Close& reason) {
        return {static_cast<websocket::close_code>(reason.code), reason.reason};
    }

    ServerContext& context_;
    std::optional<websocket::stream<Transport>> socket_;  // until it is aborted
    beast::http::request<beast::http::string_body> request_;
    Client client_;
    const bool refused_credentials_;
    Wakeup output_ready_;
    std::optional<ClientStream> stream_;
    std::optional<Close> closing_;
    std::optional<runtime::TimePoint> closes_since_;  // when the close frame was sent
    std::optional<std::uint64_t> account_;
    const runtime::TimePoint opened_;
    runtime::TimePoint last_message_;
    runtime::TimePoint heard_at_;                  // and be it a pong
    std::optional<runtime::TimePoint> pinged_at_;  // where it has not been heard since
    runtime::TimePoint taken_at_;   // when the client last took some of what is being written
    std::size_t queued_bytes_ = 0;  // by then
    runtime::TimePoint permits_at_{};
    double permits_ = -1;
    bool troupe_protocol_ = false;
    bool writing_ = false;
    bool leaves_unread_ = false;  // cut off for being slow: what it has not read, it may resume
    bool has_writer_ = false;     // stays where nothing can be written any more
    bool draining_ = false;
    bool gone_ = false;  // then socket_ may be, too
};

}  // namespace

void serve_websocket(SocketUpgrade upgrade, ServerContext& context) {
    auto executor = upgrade.stream.get_executor();
    auto connection = std::make_shared<WebSocketConnection>(std::move(upgrade), context);
    context.connections.add(connection, connection->next_look(context.clock.now()));
    spawn_connection(executor, std::move(connection));
}

}  // namespace troupe::gateway
