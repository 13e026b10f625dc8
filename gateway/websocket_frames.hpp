// RFC 6455 as a server speaks it, without a socket: a client's bytes become messages, pings and
// closes, or the reason to fail the connection; what is said to it becomes frames. No extensions.
// Holds memory only within a message. Lives on its connection's io thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace troupe::gateway {

enum class Opcode : std::uint8_t { continuation = 0, text = 1, binary = 2, close = 8, ping, pong };

namespace close_code {
inline constexpr std::uint16_t going_away = 1001;
inline constexpr std::uint16_t protocol_error = 1002;
inline constexpr std::uint16_t unknown_data = 1003;
inline constexpr std::uint16_t bad_payload = 1007;
inline constexpr std::uint16_t too_big = 1009;
inline constexpr std::uint16_t service_restart = 1012;
inline constexpr std::uint16_t try_again_later = 1013;
}  // namespace close_code

inline constexpr std::size_t kControlPayloadMax = 125;

// What a client has said. Views last until the reader is asked again.
struct ClientMessage {
    bool is_text = true;
    std::string_view payload;
    friend bool operator==(const ClientMessage&, const ClientMessage&) = default;
};
struct ClientPing {
    std::string_view payload;
    friend bool operator==(const ClientPing&, const ClientPing&) = default;
};
struct ClientPong {
    friend bool operator==(const ClientPong&, const ClientPong&) = default;
};
struct ClientClose {
    std::optional<std::uint16_t> code;
    friend bool operator==(const ClientClose&, const ClientClose&) = default;
};
// Or what is wrong with it: the connection is to be failed with this.
struct FrameFault {
    std::uint16_t code = 0;
    std::string_view reason;  // a literal
    friend bool operator==(const FrameFault&, const FrameFault&) = default;
};
using FrameEvent = std::variant<ClientMessage, ClientPing, ClientPong, ClientClose, FrameFault>;

class FrameReader {
 public:
    explicit FrameReader(std::size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}

    void set_message_bytes_max(std::size_t bytes) { message_bytes_max_ = bytes; }

    // The next of what the client has said. Takes the bytes it reads off the front of `bytes` and
    // unmasks them where they are. None where it has taken all and wants more. Not to be asked
    // again after a ClientClose or a FrameFault.
    [[nodiscard]] std::optional<FrameEvent> next(std::span<char>& bytes);

    // No frame and no message has begun that has not ended.
    [[nodiscard]] bool at_rest() const { return head_size_ == 0 && !message_; }

 private:
    void forget_last_event();
    [[nodiscard]] bool take_head(std::span<char>& bytes);
    [[nodiscard]] std::string_view take_payload(std::span<char>& bytes);
    [[nodiscard]] std::optional<FrameFault> begin_frame();
    [[nodiscard]] std::optional<FrameFault> begin_control() const;
    [[nodiscard]] std::optional<FrameFault> begin_data();
    [[nodiscard]] std::optional<FrameEvent> end_frame(std::string_view payload);
    [[nodiscard]] std::optional<FrameEvent> end_message(std::string_view payload);
    [[nodiscard]] bool text_may_go_on();

    [[nodiscard]] std::size_t head_bytes() const;
    [[nodiscard]] bool is_final() const { return (head_[0] & 0x80U) != 0; }
    [[nodiscard]] Opcode opcode() const { return static_cast<Opcode>(head_[0] & 0x0FU); }
    [[nodiscard]] bool is_control() const { return (head_[0] & 0x08U) != 0; }
    [[nodiscard]] bool is_masked() const { return (head_[1] & 0x80U) != 0; }
    [[nodiscard]] std::uint64_t payload_bytes() const;

    std::size_t message_bytes_max_;
    std::uint64_t payload_left_ = 0;       // of the frame being read
    std::array<std::uint8_t, 14> head_{};  // its first bytes; the mask stands last
    std::uint8_t head_size_ = 0;
    bool in_payload_ = false;
    bool forgets_data_ = false;      // data_ was in the last event
    std::optional<Opcode> message_;  // text or binary, while one is read
    std::uint32_t checked_ = 0;      // of data_: whole characters
    std::string data_;               // of a message that did not come whole
    std::string control_;            // of a control frame that did not come whole
};

// How a frame of a server begins: never masked, never a fragment.
void append_frame_head(std::string& out, Opcode opcode, std::size_t payload_bytes);
void append_frame(std::string& out, Opcode opcode, std::string_view payload);
// Makes what stands in `out` from `begin` on the payload of a text frame.
void frame_as_text(std::string& out, std::size_t begin);
void append_close(std::string& out, std::optional<std::uint16_t> code, std::string_view reason);

// The answer to a handshake's Sec-WebSocket-Key.
[[nodiscard]] std::string websocket_accept(std::string_view key);

}  // namespace troupe::gateway
