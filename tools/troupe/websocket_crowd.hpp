// Clients for `troupe bench gateway`: many WebSockets in one thread, in a process of their own, so
// that the server's memory and processor time are its own, and on a processor of their own: on the
// server's they would displace it whenever it wakes one of them, between two frames. Speaks as much
// of RFC 6455 as the server does to it: whole, unmasked frames. Told what to do over a socket pair,
// a line a command:
//
//     open 10000              opened 10000
//     slow 16 4000            opened 16
//     stream 32 400           streamed FRAMES GAPS P50_US P99_US MAX_US
//
// "open" leaves sockets open that say nothing but pongs; "slow" leaves some open that ask for an
// answer of so many tokens, of which every other one then reads 1,000 bytes a second and the rest
// nothing at all; "stream" has so many sockets of its own ask for an answer of so many tokens,
// reads them to the end and closes them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace troupe::tools {

// The parent's end. The child begins with the constructor, before this process has threads, and
// ends with the destructor.
class WebSocketCrowd {
 public:
    // `processor`: where the child runs; none: anywhere.
    explicit WebSocketCrowd(std::optional<int> processor);
    ~WebSocketCrowd();
    WebSocketCrowd(const WebSocketCrowd&) = delete;
    WebSocketCrowd& operator=(const WebSocketCrowd&) = delete;

    // Of the server, on this machine's loopback; once, before the others.
    void connect_to(std::uint16_t port);

    // How many could be opened.
    [[nodiscard]] std::uint32_t open(std::uint32_t count);
    [[nodiscard]] std::uint32_t open_slow(std::uint32_t count, std::uint32_t tokens);

    struct Streamed {
        std::uint64_t frames = 0;  // with text
        std::uint64_t gaps = 0;    // between frames of one stream
        double p50_ms = 0;
        double p99_ms = 0;
        double max_ms = 0;
    };
    [[nodiscard]] Streamed stream(std::uint32_t streams, std::uint32_t tokens);

 private:
    [[nodiscard]] std::string ask(const std::string& command) const;
    [[nodiscard]] std::uint32_t ask_to_open(const std::string& command) const;

    int commands_ = -1;
    int child_ = -1;
};

}  // namespace troupe::tools
