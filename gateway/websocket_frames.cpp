#include "gateway/websocket_frames.hpp"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "gateway/json_document.hpp"
#include "model/utf8.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::gateway {
namespace {

constexpr std::size_t kMaskBytes = 4;

constexpr FrameFault kNotMasked{close_code::protocol_error, "a client masks its frames"};
constexpr FrameFault kReserved{close_code::protocol_error, "reserved bits or opcode"};
constexpr FrameFault kControl{close_code::protocol_error, "a control frame is short and whole"};
constexpr FrameFault kOutOfTurn{close_code::protocol_error, "a fragment out of turn"};
constexpr FrameFault kLength{close_code::protocol_error, "a length in too many bytes"};
constexpr FrameFault kCloseCode{close_code::protocol_error, "no close code for the wire"};
constexpr FrameFault kNotUtf8{close_code::bad_payload, "text is UTF-8"};
constexpr FrameFault kTooBig{close_code::too_big, "the message is too long"};

std::size_t extended_length_bytes(std::uint8_t second) {
    const unsigned length = second & 0x7FU;
    return length < 126 ? 0 : length == 126 ? 2 : 8;
}

void unmask(std::span<char> bytes, const std::uint8_t* mask, std::uint64_t offset) {
    std::array<char, kMaskBytes> turned{};
    for (std::size_t i = 0; i < kMaskBytes; ++i)
        turned[i] = static_cast<char>(mask[(offset + i) % kMaskBytes]);
    for (std::size_t i = 0; i < bytes.size(); ++i)
        bytes[i] = static_cast<char>(bytes[i] ^ turned[i % kMaskBytes]);
}

std::string_view view(std::span<const char> bytes) {
    return {bytes.data(), bytes.size()};
}

// How much of `text` is not a character that its end cuts off.
std::size_t without_cut_character(std::string_view text) {
    constexpr std::size_t kCutBytesMax = 3;
    for (std::size_t back = 1; back <= std::min(kCutBytesMax, text.size()); ++back) {
        const std::size_t at = text.size() - back;
        if ((static_cast<std::uint8_t>(text[at]) & 0xC0U) == 0x80U) continue;
        const bool cut = model::next_utf8(text.substr(at)).form == model::Utf8Form::incomplete;
        return cut ? at : text.size();
    }
    return text.size();
}

bool may_be_sent(std::uint16_t code) {
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1013) ||
           (code >= 3000 && code <= 4999);
}

FrameEvent read_close(std::string_view payload) {
    if (payload.empty()) return ClientClose{};
    if (payload.size() == 1) return kCloseCode;
    const auto code = static_cast<std::uint16_t>(static_cast<std::uint8_t>(payload[0]) << 8U |
                                                 static_cast<std::uint8_t>(payload[1]));
    if (!may_be_sent(code)) return kCloseCode;
    if (!is_utf8(payload.substr(2))) return kNotUtf8;
    return ClientClose{code};
}

}  // namespace

std::optional<FrameEvent> FrameReader::next(std::span<char>& bytes) {
    forget_last_event();
    while (true) {
        if (!in_payload_) {
            if (!take_head(bytes)) return std::nullopt;
            if (const auto fault = begin_frame()) return *fault;
        }
        const std::string_view payload = take_payload(bytes);
        if (payload_left_ > 0) {
            (is_control() ? control_ : data_).append(payload);
            if (!text_may_go_on()) return kNotUtf8;
            return std::nullopt;
        }
        in_payload_ = false;
        head_size_ = 0;
        if (auto event = end_frame(payload)) return event;
    }
}

void FrameReader::forget_last_event() {
    if (head_size_ == 0) std::string().swap(control_);
    if (!std::exchange(forgets_data_, false)) return;
    std::string().swap(data_);
    checked_ = 0;
}

std::size_t FrameReader::head_bytes() const {
    if (head_size_ < 2) return 2;
    return 2 + extended_length_bytes(head_[1]) + (is_masked() ? kMaskBytes : 0);
}

bool FrameReader::take_head(std::span<char>& bytes) {
    while (head_size_ < head_bytes()) {
        if (bytes.empty()) return false;
        head_[head_size_++] = static_cast<std::uint8_t>(bytes.front());
        bytes = bytes.subspan(1);
    }
    return true;
}

std::uint64_t FrameReader::payload_bytes() const {
    const std::size_t digits = extended_length_bytes(head_[1]);
    if (digits == 0) return head_[1] & 0x7FU;
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < digits; ++i)
        length = length << 8U | head_[2 + i];
    return length;
}

std::optional<FrameFault> FrameReader::begin_frame() {
    const auto number = static_cast<unsigned>(opcode());
    const bool known = number <= 2 || (number >= 8 && number <= 10);
    if ((head_[0] & 0x70U) != 0 || !known) return kReserved;
    if (!is_masked()) return kNotMasked;
    if (const auto fault = is_control() ? begin_control() : begin_data()) return fault;
    payload_left_ = payload_bytes();
    in_payload_ = true;
    return std::nullopt;
}

std::optional<FrameFault> FrameReader::begin_control() const {
    if (!is_final() || payload_bytes() > kControlPayloadMax) return kControl;
    return std::nullopt;
}

std::optional<FrameFault> FrameReader::begin_data() {
    if ((opcode() == Opcode::continuation) != message_.has_value()) return kOutOfTurn;
    const std::uint64_t length = payload_bytes();
    const std::size_t digits = extended_length_bytes(head_[1]);
    if ((digits == 2 && length < 126) || (digits == 8 && length < 65536)) return kLength;
    if (length > message_bytes_max_ - std::min(message_bytes_max_, data_.size())) return kTooBig;
    if (!message_) message_ = opcode();
    return std::nullopt;
}

std::string_view FrameReader::take_payload(std::span<char>& bytes) {
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), payload_left_));
    const std::span<char> payload = bytes.first(size);
    unmask(payload, &head_[head_bytes() - kMaskBytes], payload_bytes() - payload_left_);
    bytes = bytes.subspan(size);
    payload_left_ -= size;
    return view(payload);
}

std::optional<FrameEvent> FrameReader::end_frame(std::string_view payload) {
    if (!is_control()) return end_message(payload);
    if (!control_.empty()) payload = control_.append(payload);
    switch (opcode()) {
        case Opcode::ping:
            return ClientPing{payload};
        case Opcode::pong:
            return ClientPong{};
        default:
            return read_close(payload);
    }
}

std::optional<FrameEvent> FrameReader::end_message(std::string_view payload) {
    if (!is_final() || !data_.empty()) {
        data_.append(payload);
        payload = data_;
        forgets_data_ = is_final();
    }
    if (!is_final()) {
        if (!text_may_go_on()) return kNotUtf8;
        return std::nullopt;
    }
    const bool is_text = *std::exchange(message_, std::nullopt) == Opcode::text;
    if (is_text && !is_utf8(payload.substr(checked_))) return kNotUtf8;
    return ClientMessage{is_text, payload};
}

// Text that can become none is refused before it has come whole.
bool FrameReader::text_may_go_on() {
    if (message_ != Opcode::text) return true;
    const std::string_view rest = std::string_view(data_).substr(checked_);
    const std::size_t whole = without_cut_character(rest);
    checked_ += static_cast<std::uint32_t>(whole);
    return is_utf8(rest.substr(0, whole));
}

void append_frame_head(std::string& out, Opcode opcode, std::size_t payload_bytes) {
    out += static_cast<char>(0x80U | static_cast<unsigned>(opcode));
    if (payload_bytes < 126) {
        out += static_cast<char>(payload_bytes);
        return;
    }
    const unsigned digits = payload_bytes < 65536 ? 2 : 8;
    out += static_cast<char>(digits == 2 ? 126 : 127);
    for (unsigned i = digits; i-- > 0;)
        out += static_cast<char>(payload_bytes >> (8 * i) & 0xFFU);
}

void append_frame(std::string& out, Opcode opcode, std::string_view payload) {
    append_frame_head(out, opcode, payload.size());
    out.append(payload);
}

void frame_as_text(std::string& out, std::size_t begin) {
    std::string head;  // of at most 10 bytes: allocates nothing
    append_frame_head(head, Opcode::text, out.size() - begin);
    out.insert(begin, head);
}

void append_close(std::string& out, std::optional<std::uint16_t> code, std::string_view reason) {
    std::string payload;
    if (code) {
        payload += static_cast<char>(*code >> 8U);
        payload += static_cast<char>(*code & 0xFFU);
        payload.append(reason);
    }
    TROUPE_ASSERT(payload.size() <= kControlPayloadMax);
    append_frame(out, Opcode::close, payload);
}

std::string websocket_accept(std::string_view key) {
    std::string salted(key);
    salted += "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    std::array<unsigned char, SHA_DIGEST_LENGTH> digest{};
    SHA1(reinterpret_cast<const unsigned char*>(salted.data()), salted.size(), digest.data());
    constexpr std::size_t kBase64Bytes = 4 * ((SHA_DIGEST_LENGTH + 2) / 3);
    std::array<unsigned char, kBase64Bytes + 1> text{};
    EVP_EncodeBlock(text.data(), digest.data(), static_cast<int>(digest.size()));
    return {reinterpret_cast<const char*>(text.data()), kBase64Bytes};
}

}  // namespace troupe::gateway
