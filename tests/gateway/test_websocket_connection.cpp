// A WebSocket on a pair of connected sockets, behind the handshake: what comes together and what
// comes apart, heartbeats, closes, and clients that do not read. One thread, time that is told.
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "gateway/websocket_connection.hpp"
#include "runtime/thread.hpp"
#include "tests/gateway/session_play.hpp"
#include "tests/gateway/websocket_client.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using namespace gateway;
using namespace test;
using boost::asio::ip::tcp;
using boost::asio::local::stream_protocol;

using Frames = std::vector<ServerFrame>;

const ServerFrame kServerPing{Opcode::ping, ""};
constexpr std::size_t kSmallBufferBytes = 4096;

std::string text(std::string_view payload, FrameForm form = {}) {
    return client_frame(Opcode::text, payload, form);
}
std::string ping_event(int t) {
    return R"({"type":"troupe:ping","t":)" + std::to_string(t) + "}";
}
ServerFrame pong_event(int t) {
    return {Opcode::text,
            R"({"type":"troupe:pong","sequence_number":0,"t":)" + std::to_string(t) + "}"};
}
std::string create_event() {
    return R"({"type":"response.create","input":"the cat","store":false})";
}

class SocketFixture : public HubFixture {
 public:
    SocketFixture() {
        stream_protocol::socket served_end(io_.executor());
        boost::asio::local::connect_pair(client_, served_end);
        client_.non_blocking(true);
        const int bytes = kSmallBufferBytes;
        ::setsockopt(served_end.native_handle(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        clock.advance_by(1000s);
        transport_.emplace(tcp::socket(io_.executor(), tcp::v4(), served_end.release()), nullptr);
    }
    ~SocketFixture() {
        context_.connections.for_each([](Connection& c) { c.abort(); });
        run();
    }

    // `ahead`: what has been read with the handshake.
    void serve(std::string_view ahead = {}, bool refused = false) {
        transport_->put_back(ahead);
        serve_websocket({.transport = std::move(*transport_),
                         .client = {.principal = {.id = 1, .weight = 1}},
                         .refused_credentials = refused},
                        context_);
        run();
    }
    void run() {
        do {
            io_.context().restart();
            run_helpers();
        } while (io_.context().poll() > 0);
        collect();
    }
    void say(const std::string& bytes) {
        std::string_view left = bytes;
        while (!left.empty()) {
            boost::system::error_code error;
            left.remove_prefix(client_.write_some(boost::asio::buffer(left), error));
            REQUIRE((!error || error == boost::asio::error::would_block));
            run();
        }
    }
    // As people do who are slow to type: a byte a time.
    void say_slowly(const std::string& bytes) {
        for (const char byte : bytes)
            say(std::string(1, byte));
    }
    // Reads what there is, until nothing more comes.
    Frames hear() {
        char bytes[4096];
        boost::system::error_code error;
        while (!error) {
            const std::size_t count = client_.read_some(boost::asio::buffer(bytes), error);
            heard_.append(bytes, count);
            run();
        }
        is_over_ |= error != boost::asio::error::would_block;
        Frames frames;
        while (auto frame = take_server_frame(heard_))
            frames.push_back(std::move(*frame));
        return frames;
    }
    void pass(std::chrono::seconds time) {
        for (; time > 0s; time -= 1s) {
            clock.advance_by(1s);
            context_.connections.tick(clock.now(), 100);
            run();
        }
    }
    void leave() {
        client_.close();
        run();
    }
    void stream(std::size_t bytes) {
        tokens(0, std::string(bytes, 'x'));
        run();
    }
    [[nodiscard]] bool is_over() const { return is_over_; }
    [[nodiscard]] bool is_gone() const { return context_.connections.empty(); }
    [[nodiscard]] ServerContext& context() { return context_; }

 private:
    runtime::NamedThread io_{"io", clock,
                             [](const runtime::LaneFailure& failure) { FAIL(failure.what); }};
    actors::EngineStats stats_{1};
    ServerSettings settings_;
    Metrics metrics_;
    model::LoadProgress loading_;
    Serving serving_{served, hub, stats_};
    ServerContext context_{.settings = settings_,
                           .io = io_,
                           .clock = clock,
                           .metrics = metrics_,
                           .loading = loading_,
                           .serving = &serving_};
    stream_protocol::socket client_{io_.executor()};
    std::optional<Transport> transport_;
    std::string heard_;
    bool is_over_ = false;
};

TEST_CASE("Messages are answered, in whatever pieces they come", "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    socket.say(text(ping_event(0)) + text(ping_event(1)));
    CHECK(socket.hear() == Frames{pong_event(0), pong_event(1)});
    socket.say_slowly(text(ping_event(2)));
    CHECK(socket.hear() == Frames{pong_event(2)});
    const std::string filler(100'000, ' ');
    socket.say(text(filler + ping_event(3)));
    CHECK(socket.hear() == Frames{pong_event(3)});
    socket.say(text(ping_event(4)));
    CHECK(socket.hear() == Frames{pong_event(4)});
}

TEST_CASE("What came with the handshake is read first", "[gateway][websocket]") {
    SocketFixture socket;
    const std::string both = text(ping_event(0)) + text(ping_event(1));
    socket.serve(both.substr(0, both.size() - 9));
    CHECK(socket.hear() == Frames{pong_event(0)});
    socket.say(both.substr(both.size() - 9));
    CHECK(socket.hear() == Frames{pong_event(1)});
}

TEST_CASE("An idle client is pinged, and any answer counts", "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    const std::string pong = client_frame(Opcode::pong, "");
    const auto expect_ping = [&] {
        socket.pass(20s);
        CHECK(socket.hear() == Frames{kServerPing});
    };
    expect_ping();
    socket.say(pong);
    expect_ping();
    socket.say_slowly(pong);
    expect_ping();
    socket.say(pong + text(ping_event(0)));
    CHECK(socket.hear() == Frames{pong_event(0)});
    expect_ping();
    socket.say(text(ping_event(1)) + pong);
    CHECK(socket.hear() == Frames{pong_event(1)});
    expect_ping();
    socket.say(text(R"({"type":"troupe)", {.final = false}) + pong);
    CHECK(socket.hear().empty());
    expect_ping();
    socket.say(client_frame(Opcode::continuation, R"(:ping","t":2})"));
    CHECK(socket.hear() == Frames{pong_event(2)});
    expect_ping();
    CHECK_FALSE(socket.is_gone());
    socket.pass(25s);
    CHECK(socket.hear().empty());
    CHECK(socket.is_gone());
}

TEST_CASE("A client's pings are answered with their payload, also within a message",
          "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    socket.say(client_frame(Opcode::ping, "1") + client_frame(Opcode::ping, "2"));
    CHECK(socket.hear() == Frames{{Opcode::pong, "1"}, {Opcode::pong, "2"}});
    socket.say(text("{", {.final = false}) + client_frame(Opcode::ping, std::string(125, 'p')));
    CHECK(socket.hear() == Frames{{Opcode::pong, std::string(125, 'p')}});
}

TEST_CASE("Control frames never fall into a frame that is being written", "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    socket.say(text(create_event()));
    (void)socket.hear();
    socket.stream(30'000);  // more than the socket takes
    for (int i = 0; i < 1000; ++i)
        socket.say(client_frame(Opcode::ping, std::to_string(i)));
    socket.pass(21s);  // a heartbeat is due, too
    socket.stream(1000);
    std::size_t text_bytes = 0;
    std::string latest_pong;
    for (const ServerFrame& frame : socket.hear()) {
        if (frame.opcode == Opcode::pong) latest_pong = frame.payload;
        if (frame.opcode != Opcode::text) continue;
        expect_json(frame.payload);
        text_bytes +=
            static_cast<std::size_t>(std::count(frame.payload.begin(), frame.payload.end(), 'x'));
    }
    CHECK(text_bytes >= 31'000);
    CHECK(latest_pong == "999");
}

TEST_CASE("Who takes nothing of what is written is given up", "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    socket.say(text(create_event()));
    (void)socket.hear();
    socket.stream(30'000);
    for (int i = 0; i < 29; ++i) {
        socket.pass(1s);
        socket.say(client_frame(Opcode::pong, ""));
    }
    CHECK_FALSE(socket.is_gone());
    socket.pass(3s);
    CHECK(socket.is_gone());
    CHECK(socket.cancels.size() == 1);
}

TEST_CASE("A client's close is answered with its code, and ends what runs",
          "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    socket.say(text(create_event()));
    (void)socket.hear();
    socket.say(client_frame(Opcode::close,
                            "\x0F\xA1"
                            "bye") +
               text(ping_event(0)));
    CHECK(socket.hear() == Frames{{Opcode::close, "\x0F\xA1"}});
    CHECK(socket.is_over());
    CHECK(socket.cancels.size() == 1);
    socket.leave();
    CHECK(socket.is_gone());
}

TEST_CASE("A close waits for the frame that is being written", "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    socket.say(text(create_event()));
    (void)socket.hear();
    socket.stream(30'000);
    socket.say(client_frame(Opcode::close, ""));
    const Frames last = socket.hear();
    REQUIRE(last.size() >= 2);
    expect_json(last[0].payload);
    CHECK(last.back() == ServerFrame{Opcode::close, ""});
    CHECK(socket.is_over());
}

TEST_CASE("A fault closes with its code, and the connection ends", "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    socket.say(text("{}", {.masked = false}) + text(ping_event(0)));
    const Frames frames = socket.hear();
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].opcode == Opcode::close);
    CHECK(frames[0].payload.starts_with("\x03\xEA"));
    CHECK(socket.is_over());
    socket.pass(7s);  // and where the client does not end its side
    CHECK(socket.is_gone());
}

TEST_CASE("The server's close waits for the client's, not for ever", "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    socket.say(client_frame(Opcode::binary, "x") + text(ping_event(0)));
    Frames frames = socket.hear();
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].payload.starts_with("\x03\xEB"));
    CHECK_FALSE(socket.is_over());
    SECTION("an answer ends it") {
        socket.say(text(ping_event(1)) + client_frame(Opcode::close, "\x03\xEB"));
        CHECK(socket.hear().empty());
        CHECK(socket.is_over());
    }
    SECTION("so does nonsense") {
        socket.say(client_frame(static_cast<Opcode>(3), ""));
        CHECK(socket.hear().empty());
        CHECK(socket.is_over());
    }
    SECTION("and silence") {
        socket.pass(4s);
        CHECK_FALSE(socket.is_gone());
        socket.pass(3s);
        CHECK(socket.is_gone());
    }
}

TEST_CASE("A client that is gone leaves nothing behind", "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    SECTION("while idle") {}
    SECTION("within a message") {
        socket.say(text(ping_event(0)).substr(0, 9));
    }
    SECTION("while its answer is written") {
        socket.say(text(create_event()));
        socket.stream(30'000);
    }
    socket.leave();
    CHECK(socket.is_gone());
    CHECK(socket.hub.session_count() == 0);
    CHECK(socket.context().sockets_of_principal.empty());
}

TEST_CASE("Refused credentials are explained, then closed", "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve({}, true);
    const Frames frames = socket.hear();
    REQUIRE(frames.size() == 2);
    CHECK(frames[0].opcode == Opcode::text);
    expect_json(frames[0].payload);
    CHECK(frames[1] == ServerFrame{Opcode::close, "\x11\x31invalid API key"});
    socket.say(text("{}"));
    socket.pass(7s);
    CHECK(socket.is_gone());
}

TEST_CASE("A server that goes down closes its idle sockets, and others when they are idle",
          "[gateway][websocket]") {
    SocketFixture socket;
    socket.serve();
    socket.say(text(create_event()));
    (void)socket.hear();
    socket.context().draining = true;
    socket.context().connections.for_each([](Connection& c) { c.drain(); });
    socket.run();
    CHECK(socket.hear().empty());
    socket.stream(10);
    socket.finish(0);
    socket.run();
    const Frames frames = socket.hear();
    REQUIRE(frames.size() > 2);
    CHECK(frames.back().opcode == Opcode::close);
    CHECK(frames.back().payload.starts_with("\x03\xF4"));
}

}  // namespace
}  // namespace troupe
