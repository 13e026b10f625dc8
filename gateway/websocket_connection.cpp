#include "gateway/websocket_connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>

#include "gateway/admission.hpp"
#include "gateway/websocket_frames.hpp"
#include "runtime/base/log.hpp"

namespace troupe::gateway {
namespace {

namespace asio = boost::asio;

constexpr std::uint16_t kAuthRefused = 4401;
constexpr std::uint16_t kForbidden = 4403;
constexpr std::uint16_t kAuthTimeout = 4408;
constexpr std::uint16_t kTooMany = 4429;

constexpr std::size_t kIdleReadBytes = 64;  // a pong has 6 bytes, and most messages begin with few
constexpr std::size_t kReadBytes = 4 << 10;
constexpr std::size_t kWriteBytes = 16 << 10;  // about, of one write
constexpr std::size_t kPongBytesMax = 4 << 10;

// A page cannot read the status of a refused handshake; it can read this.
constexpr std::string_view kRefusal =
    R"({"type":"error","status":401,"code":"invalid_api_key",)"
    R"("message":"the API key is not one of this server's","param":null,)"
    R"("sequence_number":0,)"
    R"("error":{"type":"authentication_error","code":"invalid_api_key",)"
    R"("message":"the API key is not one of this server's","param":null}})";

class WebSocketConnection final : public Connection,
                                  public FrameWriter,
                                  public std::enable_shared_from_this<WebSocketConnection> {
 public:
    WebSocketConnection(SocketUpgrade upgrade, ServerContext& context)
        : context_(context),
          transport_(std::move(upgrade.transport)),
          heard_at_(context.clock.now() - context.next_head_start()),
          opened_(context.clock.now()),
          last_message_(opened_),
          taken_at_(opened_),
          draining_(context.draining),
          refusal_due_(upgrade.refused_credentials),
          reader_(upgrade.client.authenticated
                      ? context.serving->model.limits.message_bytes_max
                      : context.serving->model.limits.unauthenticated_bytes_max),
          client_(upgrade.client) {
        context_.metrics.connection_opened();
    }
    ~WebSocketConnection() override {
        context_.connections.remove(*this);
        leave_account();
        context_.metrics.connection_closed();
    }

    void begin(bool troupe_protocol) {
        if (refusal_due_) {
            close({kAuthRefused, "invalid API key"});
        } else {
            const bool room = join_account();
            make_stream(troupe_protocol);
            if (!room) close({kTooMany, "too many connections of one client"});
        }
        wake_writer();
        read_more();
    }

    [[nodiscard]] std::size_t unread_bytes() const override {
        return stream_ ? stream_->pending_bytes() : 0;
    }

    runtime::TimePoint tick(runtime::TimePoint now) override {
        check_times(now);
        at_work_ = at_work_ && (writing_ || closing_ || !stream_->idle());
        return next_look(now);
    }
    // An idle one is left alone until its time is over.
    runtime::TimePoint next_look(runtime::TimePoint now) const {
        const auto& settings = context_.settings;
        const auto soon = now + settings.look_interval;
        if (at_work_ || !client_.authenticated) return soon;
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
        wake_writer();
    }

    void abort() override { leave(); }

    void make_frames(std::string& frames) override {
        guard([&] { has_more_ = make(frames); });
    }
    void send_frames(std::string_view frames) override {
        guard([&] {
            send(frames);
            if (std::exchange(has_more_, false)) return write_more();
            rest();
        });
    }

 private:
    // What is at work on the socket ends with it.
    void leave() {
        if (std::exchange(gone_, true)) return;
        if (stream_) stream_->on_disconnect();
        transport_.close();
    }

    // What is thrown is a bug: it ends this connection alone.
    template <class Work>
    void guard(Work work) {
        try {
            if (!gone_) work();
        } catch (const std::exception& e) {
            log::error("a connection failed and was closed: {}", e.what());
            leave();
        }
    }

    void check_times(runtime::TimePoint now) {
        const auto& settings = context_.settings;
        if (writing_ && !takes_anything(now)) {
            context_.metrics.slow_client_closed();
            return leave();
        }
        if (closes_since_ && now - *closes_since_ > settings.handshake_timeout) return leave();
        if (closing_ || gone_) return;
        if (!client_.authenticated && now - opened_ > settings.auth_timeout)
            return close({kAuthTimeout, "no troupe:auth came in time"});
        if (at_work_ && unread_bytes() > settings.pending_bytes_max) {
            context_.metrics.slow_client_closed();
            leaves_unread_ = true;
            return close({close_code::try_again_later, "the client reads too slowly"});
        }
        check_heartbeat(now);
        if (at_work_ && !stream_->idle()) return;
        if (draining_) return close({close_code::service_restart, "the server restarts"});
        if (now - opened_ >= settings.life_max)
            return close({close_code::going_away, "connections last an hour at most"});
        if (now - last_message_ >= settings.idle_timeout)
            close({close_code::going_away, "nothing happened for ten minutes"});
    }

    // Who has not been heard for a while is pinged, and given up when nothing comes of it.
    void check_heartbeat(runtime::TimePoint now) {
        if (now < next_heartbeat()) return;
        if (pinged_at_) return leave();
        pinged_at_ = now;
        if (writing_) {
            append_frame(control_frames_, Opcode::ping, {});
        } else {
            std::string ping;
            append_frame(ping, Opcode::ping, {});
            send(ping);
        }
    }
    runtime::TimePoint next_heartbeat() const {
        return pinged_at_.value_or(heard_at_) + context_.settings.heartbeat;
    }

    void make_stream(bool troupe_protocol) {
        ClientContext who;
        who.principal = client_.principal;
        who.authenticated = client_.authenticated;
        who.troupe_protocol = troupe_protocol;
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
        reader_.set_message_bytes_max(context_.serving->model.limits.message_bytes_max);
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
        if (const auto queued = transport_.queued_bytes(); queued != queued_bytes_) {
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

    // Waits with room for what an idle client says, and with more within a message.
    void read_more() {
        std::span<char> room(idle_room_);
        if (hears_more_ && !room_) room_ = std::make_unique_for_overwrite<Room>();
        if (room_) room = *room_;
        transport_.async_read_some(
            asio::buffer(room.data(), room.size()),
            [self = shared_from_this(), room](const boost::system::error_code& error,
                                              std::size_t n) {
                self->guard([&] { self->on_read(error, room.first(n), n == room.size()); });
            });
    }

    void on_read(const boost::system::error_code& error, std::span<char> bytes, bool full) {
        if (error) return leave();
        heard_at_ = context_.clock.now();
        pinged_at_.reset();
        bool asks = false;
        for (auto event = reader_.next(bytes); event; event = reader_.next(bytes)) {
            asks |= !std::holds_alternative<ClientPong>(*event);
            std::visit([this](const auto& e) { on(e); }, *event);
            if (hears_no_more_) break;
        }
        hears_more_ = full || !reader_.at_rest();
        if (!hears_more_) room_.reset();
        if (!hears_no_more_) read_more();
        if (asks) write_more();
    }

    void on(const ClientPong&) {}
    void on(const ClientPing& ping) {
        if (control_frames_.size() > kPongBytesMax) control_frames_.clear();  // the latest counts
        append_frame(control_frames_, Opcode::pong, ping.payload);
    }
    void on(const ClientClose& close) { end_hearing({close.code.value_or(0), ""}); }
    void on(const FrameFault& fault) { end_hearing({fault.code, std::string(fault.reason)}); }
    void on(const ClientMessage& message) {
        if (closing_) return;
        if (!message.is_text)
            return close({close_code::unknown_data, "messages are text, not binary"});
        if (!take_message_permit())
            return close({kTooMany, fmt::format("more than {} messages a minute",
                                                context_.settings.messages_per_minute)});
        last_message_ = context_.clock.now();
        if (auto reason = stream_->on_message(message.payload)) close(std::move(*reason));
    }

    // Nothing that the client still says counts, and of what it was to be told only why.
    void end_hearing(Close reason) {
        hears_no_more_ = true;
        leaves_unread_ = true;
        if (stream_) stream_->on_disconnect();
        close(std::move(reason));
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

    // Called wherever there may be something to write, also from within stream_.
    void wake_writer() {
        if (gone_ || std::exchange(awake_, true)) return;
        context_.writes.add(shared_from_this());
    }

    // One write at work; everything that is pending when it has ended is the next.
    void write_more() {
        for (bool more = true; more && !gone_;) {
            std::string& frames = context_.writes.empty_buffer();
            more = make(frames);
            send(frames);
        }
        rest();
    }

    // When all is sent that there was.
    void rest() {
        if (gone_ || writing_) return;
        if (closes_since_ && hears_no_more_) return finish();
        if (draining_) check_times(context_.clock.now());
    }

    // True where there may be more.
    bool make(std::string& frames) {
        awake_ = false;
        if (!std::exchange(at_work_, true))
            context_.connections.look(*this,
                                      context_.clock.now() + context_.settings.look_interval);
        if (writing_ || closes_since_) return false;
        frames.append(std::exchange(control_frames_, {}));
        if (std::exchange(refusal_due_, false)) append_frame(frames, Opcode::text, kRefusal);
        for (const std::size_t most = frames.size() + kWriteBytes; frames.size() < most;) {
            const std::size_t begin = frames.size();
            if (leaves_unread_ || !stream_ || !stream_->next_frame(frames)) {
                if (closing_) gather_close(frames);
                return false;
            }
            frame_as_text(frames, begin);
        }
        return true;
    }

    void gather_close(std::string& frames) {
        closes_since_ = context_.clock.now();
        const auto code = closing_->code == 0 ? std::nullopt : std::optional(closing_->code);
        append_close(frames, code, closing_->reason);
    }

    void send(std::string_view bytes) {
        if (bytes.empty()) return;
        boost::system::error_code error;
        const std::size_t sent = transport_.write_now(asio::buffer(bytes), error);
        if (error) return leave();
        if (sent == bytes.size()) return;
        unsent_ = bytes.substr(sent);
        writing_ = true;
        taken_at_ = context_.clock.now();
        write_unsent();
    }

    void write_unsent() {
        transport_.async_write_some(
            asio::buffer(unsent_),
            [self = shared_from_this()](const boost::system::error_code& error, std::size_t n) {
                self->guard([&] { self->on_written(error, n); });
            });
    }

    void on_written(const boost::system::error_code& error, std::size_t n) {
        if (error) return leave();
        unsent_.erase(0, n);
        if (!unsent_.empty()) return write_unsent();
        std::string().swap(unsent_);
        writing_ = false;
        write_more();
    }

    void close(Close reason) {
        if (closing_) return;
        closing_ = std::move(reason);
        wake_writer();
    }

    // Both sides have said that they close.
    void finish() {
        if (std::exchange(finishing_, true)) return;
        transport_.async_finish(
            [self = shared_from_this()](const boost::system::error_code&) { self->leave(); });
    }

    using Room = std::array<char, kReadBytes>;

    // First what a ping and its answer touch.
    ServerContext& context_;
    Transport transport_;
    runtime::TimePoint heard_at_;                  // and be it a pong
    std::optional<runtime::TimePoint> pinged_at_;  // where it has not been heard since
    const runtime::TimePoint opened_;
    runtime::TimePoint last_message_;
    runtime::TimePoint taken_at_;  // when the client last took some of what is being written
    bool writing_ = false;
    bool leaves_unread_ = false;  // what it has not read, it may resume
    bool at_work_ = false;        // something was to write or to wait for when last looked at
    bool awake_ = false;
    bool has_more_ = false;  // between make_frames() and send_frames()
    bool draining_ = false;
    bool hears_more_ = false;     // the client is in the middle of something
    bool hears_no_more_ = false;  // it has said that it closes, or nonsense
    bool finishing_ = false;
    bool refusal_due_ = false;
    bool gone_ = false;
    std::array<char, kIdleReadBytes> idle_room_;
    FrameReader reader_;

    std::unique_ptr<Room> room_;  // within a message
    std::string unsent_;          // of what is being written
    std::string control_frames_;  // that go before all others
    std::optional<ClientStream> stream_;
    std::optional<Close> closing_;
    std::optional<runtime::TimePoint> closes_since_;  // when the close frame was written
    Client client_;
    std::optional<std::uint64_t> account_;
    std::size_t queued_bytes_ = 0;  // at taken_at_
    runtime::TimePoint permits_at_{};
    double permits_ = -1;
};

}  // namespace

void serve_websocket(SocketUpgrade upgrade, ServerContext& context) {
    const bool troupe_protocol = upgrade.troupe_protocol;
    auto connection = std::make_shared<WebSocketConnection>(std::move(upgrade), context);
    context.connections.add(connection, connection->next_look(context.clock.now()));
    connection->begin(troupe_protocol);
}

}  // namespace troupe::gateway
