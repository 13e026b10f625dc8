// A WebSocket client that says what it is told, right or wrong: frames byte by byte (RFC 6455).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "gateway/websocket_frames.hpp"

namespace troupe::test {

struct FrameForm {
    bool final = true;
    bool masked = true;
    std::uint8_t reserved = 0;
    std::size_t length_bytes = 0;  // 0: the shortest form
};

inline std::string client_frame(gateway::Opcode opcode, std::string_view payload,
                                FrameForm form = {}) {
    constexpr std::string_view kMask = "\x37\xFA\x21\x3D";
    std::string frame;
    frame += static_cast<char>((form.final ? 0x80U : 0U) | unsigned{form.reserved} << 4U |
                               static_cast<unsigned>(opcode));
    std::size_t digits = form.length_bytes;
    if (digits == 0 && payload.size() > 125) digits = payload.size() < 65536 ? 2 : 8;
    const unsigned first =
        digits == 0 ? static_cast<unsigned>(payload.size()) : (digits == 2 ? 126U : 127U);
    frame += static_cast<char>((form.masked ? 0x80U : 0U) | first);
    for (std::size_t i = digits; i-- > 0;)
        frame += static_cast<char>(std::uint64_t{payload.size()} >> (8 * i) & 0xFFU);
    if (!form.masked) return frame.append(payload);
    frame += kMask;
    for (std::size_t i = 0; i < payload.size(); ++i)
        frame += static_cast<char>(payload[i] ^ kMask[i % 4]);
    return frame;
}

struct ServerFrame {
    gateway::Opcode opcode{};
    std::string payload;
    friend bool operator==(const ServerFrame&, const ServerFrame&) = default;
    friend std::ostream& operator<<(std::ostream& out, const ServerFrame& frame) {
        return out << static_cast<int>(frame.opcode) << " \"" << frame.payload << '"';
    }
};

// Takes the first whole frame of a server off `bytes`.
inline std::optional<ServerFrame> take_server_frame(std::string& bytes) {
    const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(bytes[i]); };
    if (bytes.size() < 2) return std::nullopt;
    std::size_t size = at(1);
    std::size_t head = 2;
    if (size >= 126) {
        const std::size_t digits = size == 126 ? 2 : 8;
        if (bytes.size() < 2 + digits) return std::nullopt;
        for (size = 0; head < 2 + digits; ++head)
            size = size << 8U | at(head);
    }
    if (bytes.size() < head + size) return std::nullopt;
    ServerFrame frame{static_cast<gateway::Opcode>(at(0) & 0xFU), bytes.substr(head, size)};
    bytes.erase(0, head + size);
    return frame;
}

}  // namespace troupe::test
