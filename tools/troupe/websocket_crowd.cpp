#include "tools/troupe/websocket_crowd.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/assert.hpp"

namespace troupe::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kHandshake =
    "GET /v1/responses HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
constexpr unsigned char kText = 0x1, kPing = 0x9, kPong = 0xA;

// How a slow socket reads: so much, so often.
constexpr std::size_t kSipBytes = 100;
constexpr std::chrono::milliseconds kSipInterval{100};
constexpr int kSlowBufferBytes = 2304;  // the least that the kernel keeps for a socket

// False where the other end is gone.
bool write_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (written <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return true;
}

// One line without its end; empty where the other end is gone.
std::string read_line(int fd) {
    std::string line;
    for (char byte = 0; ::read(fd, &byte, 1) == 1 && byte != '\n';)
        line += byte;
    return line;
}

// A client's frame, masked with zeros, which changes nothing.
std::string client_frame(unsigned char opcode, std::string_view payload) {
    TROUPE_ASSERT(payload.size() < 0x10000);
    std::string frame{static_cast<char>(0x80 | opcode)};
    if (payload.size() < 126) {
        frame += static_cast<char>(0x80 | payload.size());
    } else {
        frame += static_cast<char>(0x80 | 126);
        frame += static_cast<char>(payload.size() >> 8U);
        frame += static_cast<char>(payload.size() & 0xFFU);
    }
    frame.append(4, '\0');
    return frame.append(payload);
}

class Socket {
 public:
    explicit Socket(int fd) : fd_(fd) {}
    ~Socket() { ::close(fd_); }
    Socket(const Socket&) = delete;
    Socket& operator=(const Socket&) = delete;

    [[nodiscard]] int fd() const { return fd_; }
    bool send(unsigned char opcode, std::string_view payload) const {
        return write_all(fd_, client_frame(opcode, payload));
    }

    // Reads once and calls `on_text` with each whole text message. False where it has been closed.
    template <class OnText>
    bool receive(OnText on_text) {
        std::array<char, 65536> bytes;
        const ssize_t got = ::recv(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN) return true;
        if (got <= 0) return false;
        buffer_.append(bytes.data(), static_cast<std::size_t>(got));
        std::size_t taken = 0;
        while (const auto frame = next_frame(std::string_view(buffer_).substr(taken))) {
            taken += frame->size;
            if (frame->opcode == kPing) send(kPong, frame->payload);
            if (frame->opcode == kText) on_text(frame->payload);
        }
        buffer_.erase(0, taken);
        if (buffer_.empty()) buffer_.shrink_to_fit();
        return true;
    }

 private:
    struct Frame {
        unsigned char opcode = 0;
        std::string_view payload;
        std::size_t size = 0;  // with its head
    };
    static std::optional<Frame> next_frame(std::string_view bytes) {
        const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
        if (bytes.size() < 2) return std::nullopt;
        std::size_t head = 2;
        std::size_t length = at(1);
        if (length >= 126) {
            const std::size_t digits = length == 126 ? 2 : 8;
            if (bytes.size() < head + digits) return std::nullopt;
            for (length = 0; head < 2 + digits; ++head)
                length = length << 8U | at(head);
        }
        if (bytes.size() < head + length) return std::nullopt;
        return Frame{static_cast<unsigned char>(at(0) & 0xFU), bytes.substr(head, length),
                     head + length};
    }

    const int fd_;
    std::string buffer_;
};

// The child.
class Crowd {
 public:
    explicit Crowd(int commands) : commands_(commands), poll_(::epoll_create1(0)) {
        watch(commands_);
    }
    ~Crowd() { ::close(poll_); }
    Crowd(const Crowd&) = delete;
    Crowd& operator=(const Crowd&) = delete;

    void run() {
        while (!gone_)
            poll([this](Socket& socket) {
                if (!socket.receive([](std::string_view) {})) sockets_.erase(socket.fd());
            });
    }

 private:
    void obey(const std::string& line) {
        std::istringstream words(line);
        std::string verb;
        std::uint32_t count = 0, tokens = 0;
        words >> verb >> count >> tokens;
        if (verb == "port") {
            port_ = static_cast<std::uint16_t>(count);
            reply("connected");
        } else if (verb == "open") {
            std::uint32_t opened = 0;
            while (opened < count && open() != nullptr)
                ++opened;
            reply(fmt::format("opened {}", opened));
        } else if (verb == "slow") {
            std::uint32_t opened = 0;
            while (opened < count && open_slow(opened % 2 == 0, tokens))
                ++opened;
            reply(fmt::format("opened {}", opened));
        } else if (verb == "stream") {
            reply(stream(count, tokens));
        } else {
            gone_ = true;
        }
    }
    void reply(const std::string& line) { gone_ |= !write_all(commands_, line + "\n"); }

    // Null where it cannot be: most likely for want of descriptors.
    Socket* open() {
        std::unique_ptr<Socket> socket = connect(0);
        if (socket == nullptr) return nullptr;
        const int fd = socket->fd();
        watch(fd);
        return (sockets_[fd] = std::move(socket)).get();
    }

    bool open_slow(bool sips, std::uint32_t tokens) {
        std::unique_ptr<Socket> socket = connect(kSlowBufferBytes);
        if (socket == nullptr || !socket->send(kText, question(tokens))) return false;
        (sips ? sipping_ : silent_).push_back(std::move(socket));
        return true;
    }

    // `buffer_bytes`: what the kernel is to keep of what was not read yet; 0 leaves that to it.
    std::unique_ptr<Socket> connect(int buffer_bytes) const {
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0) return nullptr;
        auto socket = std::make_unique<Socket>(fd);
        if (buffer_bytes > 0)
            ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(port_);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return nullptr;
        const int on = 1;
        ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (!write_all(fd, kHandshake)) return nullptr;
        std::string head;
        for (char byte = 0; !head.ends_with("\r\n\r\n"); head += byte)
            if (::recv(fd, &byte, 1, 0) != 1) return nullptr;
        return head.starts_with("HTTP/1.1 101") ? std::move(socket) : nullptr;
    }

    static std::string question(std::uint32_t tokens) {
        return fmt::format(R"({{"type":"response.create","input":"the cat","store":false,)"
                           R"("max_output_tokens":{}}})",
                           tokens);
    }

    void watch(int fd) const {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = fd;
        ::epoll_ctl(poll_, EPOLL_CTL_ADD, fd, &event);
    }

    // Waits for something to read and calls `on_readable` with each socket that has it.
    template <class OnReadable>
    void poll(OnReadable on_readable) {
        std::array<epoll_event, 256> events{};
        sip();
        const int wait_ms = sipping_.empty() ? -1 : static_cast<int>(kSipInterval.count());
        const int ready =
            ::epoll_wait(poll_, events.data(), static_cast<int>(events.size()), wait_ms);
        for (int i = 0; i < ready; ++i) {
            const int fd = events[static_cast<std::size_t>(i)].data.fd;
            if (fd == commands_) {
                obey(read_line(commands_));
            } else if (const auto found = sockets_.find(fd); found != sockets_.end()) {
                on_readable(*found->second);
            }
        }
    }

    void sip() {
        const auto now = Clock::now();
        if (now < next_sip_) return;
        next_sip_ = now + kSipInterval;
        std::array<char, kSipBytes> bytes;
        for (const auto& socket : sipping_)
            (void)::recv(socket->fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    }

    std::string stream(std::uint32_t streams, std::uint32_t tokens) {
        std::unordered_map<int, Clock::time_point> last_frame;
        for (std::uint32_t i = 0; i < streams; ++i) {
            Socket* socket = open();
            if (socket == nullptr) return "streamed 0 0 0 0 0";
            last_frame[socket->fd()] = {};
        }
        for (const auto& [fd, none] : last_frame)
            sockets_[fd]->send(kText, question(tokens));
        std::uint64_t frames = 0;
        std::vector<double> gaps_us;
        while (!last_frame.empty() && !gone_) {
            poll([&](Socket& socket) {
                const auto now = Clock::now();
                bool ended = false;
                const bool open = socket.receive([&](std::string_view text) {
                    if (text.starts_with(R"({"type":"response.output_text.delta")")) {
                        ++frames;
                        auto& last = last_frame[socket.fd()];
                        if (last != Clock::time_point{})
                            gaps_us.push_back(
                                std::chrono::duration<double, std::micro>(now - last).count());
                        last = now;
                    }
                    ended |= text.starts_with(R"({"type":"response.incomplete")") ||
                             text.starts_with(R"({"type":"error")");
                });
                if (!open || ended) {
                    last_frame.erase(socket.fd());
                    sockets_.erase(socket.fd());
                }
            });
        }
        std::ranges::sort(gaps_us);
        const auto at = [&](double share) {
            return gaps_us.empty() ? 0.0
                                   : gaps_us[static_cast<std::size_t>(
                                         share * static_cast<double>(gaps_us.size() - 1))];
        };
        return fmt::format("streamed {} {} {:.1f} {:.1f} {:.1f}", frames, gaps_us.size(), at(0.5),
                           at(0.99), at(1));
    }

    const int commands_;
    const int poll_;
    std::uint16_t port_ = 0;
    bool gone_ = false;
    std::unordered_map<int, std::unique_ptr<Socket>> sockets_;  // that are read at once
    std::vector<std::unique_ptr<Socket>> sipping_;
    std::vector<std::unique_ptr<Socket>> silent_;
    Clock::time_point next_sip_{};
};

void run_on(int processor) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(static_cast<std::size_t>(processor), &only);
    ::sched_setaffinity(0, sizeof only, &only);
}

}  // namespace

WebSocketCrowd::WebSocketCrowd(std::optional<int> processor) {
    std::array<int, 2> pair{};
    TROUPE_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) == 0);
    child_ = ::fork();
    TROUPE_ASSERT(child_ >= 0, "a process can be started");
    if (child_ == 0) {
        ::close(pair[0]);
        if (processor) run_on(*processor);
        Crowd(pair[1]).run();
        std::_Exit(0);
    }
    ::close(pair[1]);
    commands_ = pair[0];
}

WebSocketCrowd::~WebSocketCrowd() {
    ::close(commands_);
    ::waitpid(child_, nullptr, 0);
}

std::string WebSocketCrowd::ask(const std::string& command) const {
    return write_all(commands_, command + "\n") ? read_line(commands_) : std::string();
}

void WebSocketCrowd::connect_to(std::uint16_t port) {
    (void)ask(fmt::format("port {}", port));
}

std::uint32_t WebSocketCrowd::open(std::uint32_t count) {
    return ask_to_open(fmt::format("open {}", count));
}

std::uint32_t WebSocketCrowd::open_slow(std::uint32_t count, std::uint32_t tokens) {
    return ask_to_open(fmt::format("slow {} {}", count, tokens));
}

std::uint32_t WebSocketCrowd::ask_to_open(const std::string& command) const {
    std::istringstream words(ask(command));
    std::string verb;
    std::uint32_t opened = 0;
    words >> verb >> opened;
    return opened;
}

WebSocketCrowd::Streamed WebSocketCrowd::stream(std::uint32_t streams, std::uint32_t tokens) {
    std::istringstream words(ask(fmt::format("stream {} {}", streams, tokens)));
    std::string verb;
    Streamed result;
    words >> verb >> result.frames >> result.gaps >> result.p50_ms >> result.p99_ms >>
        result.max_ms;
    for (double* time : {&result.p50_ms, &result.p99_ms, &result.max_ms})
        *time /= 1000;
    return result;
}

}  // namespace troupe::tools
