#include "gateway/client_stream.hpp"

#include <fmt/format.h>

#include <utility>

#include "gateway/client_stream_shell.hpp"
#include "gateway/json_writer.hpp"
#include "gateway/wire_client_event.hpp"
#include "gateway/wire_response.hpp"

namespace troupe::gateway {
namespace {

// This many messages in a row that are no events at all, and the client is not one of ours.
constexpr std::uint32_t kMalformedMax = 16;

actors::RequestError unauthorized(std::string message) {
    return {.status = 401, .code = "invalid_api_key", .message = std::move(message), .param = {}};
}

}  // namespace

class ClientStream::Impl {
 public:
    Impl(actors::SessionHub& hub, const ServedModel& served, ClientContext context,
         std::function<void()> output_ready, Authenticate authenticate)
        : served_(served),
          context_(std::move(context)),
          authenticate_(std::move(authenticate)),
          greeting_due_(context_.troupe_protocol),
          shell_(hub, served, context_.principal, std::move(output_ready)) {}

    [[nodiscard]] std::optional<Close> on_message(std::string_view text) {
        const std::size_t bytes_max = context_.authenticated
                                          ? served_.limits.message_bytes_max
                                          : served_.limits.unauthenticated_bytes_max;
        if (text.size() > bytes_max)
            return Close{1009, fmt::format("a message may have {} bytes", bytes_max)};
        ClientEvent event = read_client_event(text, served_);
        if (!context_.authenticated) return authenticate(event);
        const auto* refused = std::get_if<RefusedMessage>(&event);
        malformed_ = refused != nullptr && refused->malformed ? malformed_ + 1 : 0;
        std::visit([this](auto& e) { on(e); }, event);
        if (malformed_ < kMalformedMax) return std::nullopt;
        return Close{4400, "too many malformed messages"};
    }

    [[nodiscard]] bool next_frame(std::string& frame) {
        if (std::exchange(greeting_due_, false)) {
            append_greeting(frame);
            return true;
        }
        actors::ServerEvent event;
        if (!shell_.next_event(event)) return false;
        append_event(frame, event, served_);
        return true;
    }

    void disconnect() { shell_.disconnect(); }
    void drain() {
        shell_.tell([](actors::Session& core) { core.drain(); });
    }
    [[nodiscard]] bool idle() const { return !greeting_due_ && shell_.core().idle(); }
    [[nodiscard]] std::size_t pending_bytes() const { return shell_.core().pending_bytes(); }

 private:
    void on(WireCreate& create) { shell_.create(std::move(create)); }
    void on(RefusedCreate& refused) {
        shell_.tell([&](actors::Session& core) {
            core.refuse_create(std::move(refused.stream_id), std::move(refused.event_id),
                               std::move(refused.error));
        });
    }
    void on(actors::ResumeRequest& resume) {
        shell_.tell([&](actors::Session& core) { core.resume(std::move(resume)); });
    }
    void on(const actors::CancelRequest& cancel) {
        shell_.tell([&](actors::Session& core) { core.cancel(cancel); });
    }
    void on(WirePing& ping) {
        shell_.tell([&](actors::Session& core) { core.ping(std::move(ping.t_json)); });
    }
    void on(WireSteer& steer) {
        shell_.tell([&](actors::Session& core) {
            core.steer(std::move(steer.stream_id), std::move(steer.response_id),
                       std::move(steer.event_id));
        });
    }
    void on(RefusedMessage& refused) {
        report(std::move(refused.error), std::move(refused.event_id));
    }
    void on(const WireAuth&) {
        report(invalid_parameter("type", "This connection is authenticated already."), {});
    }

    void report(actors::RequestError error, std::string event_id) {
        shell_.tell(
            [&](actors::Session& core) { core.report(std::move(error), std::move(event_id)); });
    }

    [[nodiscard]] std::optional<Close> authenticate(const ClientEvent& event) {
        const auto* auth = std::get_if<WireAuth>(&event);
        const auto principal =
            auth != nullptr && authenticate_ ? authenticate_(auth->token) : std::nullopt;
        if (!principal) {
            report(unauthorized(auth == nullptr ? "The first message must be troupe:auth with a "
                                                  "token."
                                                : "The API key is not valid here."),
                   {});
            return Close{4401, "invalid_api_key"};
        }
        context_.authenticated = true;
        context_.principal = *principal;
        shell_.set_principal(*principal);
        return std::nullopt;
    }

    void append_greeting(std::string& out) const {
        JsonObject event(out);
        event.text("type", "troupe:session");
        event.text("connection_id", context_.connection_id);
        JsonObject limits(event.field("limits"));
        limits.integer("message_bytes", served_.limits.message_bytes_max);
        limits.integer("json_depth", served_.limits.depth_max);
        limits.integer("in_flight", served_.session_limits.in_flight_max);
        limits.integer("named_lanes", served_.session_limits.named_lanes_max);
        limits.integer("queued", served_.session_limits.queued_max);
        limits.integer("context_tokens", served_.context_length);
        limits.close();
        event.integer("heartbeat_ms", served_.limits.heartbeat_ms);
        event.close();
    }

    const ServedModel& served_;
    ClientContext context_;
    const Authenticate authenticate_;
    bool greeting_due_;
    std::uint32_t malformed_ = 0;  // in a row
    SessionShell shell_;
};

ClientStream::ClientStream(actors::SessionHub& hub, const ServedModel& served,
                           ClientContext context, std::function<void()> output_ready,
                           Authenticate authenticate)
    : impl_(std::make_unique<Impl>(hub, served, std::move(context), std::move(output_ready),
                                   std::move(authenticate))) {}

ClientStream::~ClientStream() = default;

std::optional<Close> ClientStream::on_message(std::string_view text) {
    return impl_->on_message(text);
}

void ClientStream::on_disconnect() {
    impl_->disconnect();
}

bool ClientStream::next_frame(std::string& frame) {
    return impl_->next_frame(frame);
}

bool ClientStream::idle() const {
    return impl_->idle();
}

std::size_t ClientStream::pending_bytes() const {
    return impl_->pending_bytes();
}

void ClientStream::drain() {
    impl_->drain();
}

}  // namespace troupe::gateway
