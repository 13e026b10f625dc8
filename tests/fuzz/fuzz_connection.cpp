// Any bytes on a socket, a byte 0xFF between what is written apart: HTTP requests with their
// framing, a WebSocket's handshake and frames. The connection ends when the client has said all, at
// the latest by its timeouts, nothing of it is left behind, and what was answered begins as HTTP
// does. A real connection on one thread, over a pair of connected sockets without ports: those of
// TCP would wait for a minute each behind their end, and a fast run would use up the machine's.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

#include "gateway/http_connection.hpp"
#include "runtime/thread.hpp"
#include "tests/gateway/session_play.hpp"

namespace {

using namespace troupe;
using boost::asio::ip::tcp;
using boost::asio::local::stream_protocol;

constexpr char kPause = '\xFF';
constexpr std::size_t kReplyBytesMax = std::size_t{4} << 20;

class Play {
 public:
    explicit Play(std::string_view bytes) : left_(bytes) {
        stream_protocol::socket served(io_.executor());
        boost::asio::local::connect_pair(client_, served);
        client_.non_blocking(true);
        gateway::serve_connection(tcp::socket(io_.executor(), tcp::v4(), served.release()),
                                  context_);
    }

    void run() {
        for (int rounds = 0; rounds == 0 || !context_.connections.empty(); ++rounds) {
            test::expect_that(rounds < 10'000, "a connection does not end", reply_.substr(0, 200));
            bool worked = serve();
            worked |= say();
            worked |= hear();
            if (!worked) pass_time();
        }
        hear();
        test::expect_that(reply_.empty() || reply_.starts_with("HTTP/1."), "no HTTP",
                          reply_.substr(0, 80));
    }

 private:
    bool serve() {
        io_.context().restart();
        const bool ran = io_.context().poll() > 0;
        return hub_.answer() || ran;
    }
    // The next write; behind the last one the client is silent for good.
    bool say() {
        if (has_finished_) return false;
        boost::system::error_code error;
        const std::string_view now = left_.substr(0, left_.find(kPause));
        const std::size_t sent =
            client_.write_some(boost::asio::buffer(now.data(), now.size()), error);
        if (error == boost::asio::error::would_block) return false;
        left_.remove_prefix(error ? left_.size() : sent);
        if (left_.starts_with(kPause)) left_.remove_prefix(1);
        if (!left_.empty()) return true;
        client_.shutdown(stream_protocol::socket::shutdown_send, error);
        return has_finished_ = true;
    }
    bool hear() {
        char bytes[4096];
        boost::system::error_code error;
        const std::size_t count = client_.read_some(boost::asio::buffer(bytes), error);
        reply_.append(bytes, count);
        test::expect_that(reply_.size() < kReplyBytesMax, "it talks without end", "");
        return count > 0;
    }
    // Nothing is left to do before more of it has passed. A client that only listens is never gone.
    void pass_time() {
        if (has_finished_) hub_.end_the_rest();
        hub_.clock.advance_by(std::chrono::seconds(1));
        hub_.hub.tick(hub_.clock.now());
        context_.connections.tick(hub_.clock.now(), context_.connections.size());
    }

    test::AnsweringHub hub_;
    runtime::NamedThread io_{"io", hub_.clock, [](const runtime::LaneFailure& failure) {
                                 test::expect_that(false, failure.coroutine, failure.what);
                             }};
    actors::EngineStats stats_{1};
    gateway::ServerSettings settings_;
    gateway::Metrics metrics_;
    model::LoadProgress loading_;
    gateway::Serving serving_{hub_.served, hub_.hub, stats_};
    gateway::ServerContext context_{.settings = settings_,
                                    .io = io_,
                                    .clock = hub_.clock,
                                    .metrics = metrics_,
                                    .loading = loading_,
                                    .serving = &serving_};
    stream_protocol::socket client_{io_.executor()};
    std::string_view left_;
    std::string reply_;
    bool has_finished_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Play({reinterpret_cast<const char*>(data), size}).run();
    return 0;
}
