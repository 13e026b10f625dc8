#include "tools/troupe/gateway_bench.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>

#include "tools/troupe/bench_server.hpp"
#include "tools/troupe/websocket_crowd.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

constexpr std::uint32_t kTokensTogether = 8;   // that travel in one frame, in the second run
constexpr std::uint32_t kTokensBefore = 50;    // warm caches and allocators up
constexpr std::uint32_t kTimesBesideIdle = 4;  // as many tokens: each idle one is pinged meanwhile
constexpr std::uint64_t kOtherDescriptors = 200;  // than those of sockets

struct GatewayFlags {
    std::uint32_t streams = 32;
    std::uint32_t tokens = 500;
    std::uint32_t idle = 10'000;
    std::uint32_t slow = 16;
    std::uint32_t pace_us = 10'000;
    bool as_json = false;
    std::optional<int> clients_on;  // the processor that only they have
};

struct Streaming {
    WebSocketCrowd::Streamed heard;
    double tokens_per_frame = 0;
    double io_us = 0;  // a token
    double engine_us = 0;
};

struct Idle {
    std::uint32_t sockets = 0;
    double heap_bytes = 0;  // a socket: what is allocated
    double resident_bytes = 0;
};

struct Measured {
    Streaming alone;
    Idle idle;
    Streaming beside_idle;
    Streaming beside_more;  // as many more streams as slow readers, whose answers are read
    Streaming beside_slow;
    Streaming together;  // kTokensTogether a frame
};

// As many descriptors as the machine lets this process have; gives how many.
std::uint64_t raise_descriptors() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

// Leaves one of this process's processors to others, if it has two: gives which.
std::optional<int> give_a_processor_away() {
    cpu_set_t ours;
    CPU_ZERO(&ours);
    if (::sched_getaffinity(0, sizeof ours, &ours) != 0 || CPU_COUNT(&ours) < 2) return {};
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(static_cast<std::size_t>(last), &ours))
        --last;
    CPU_CLR(static_cast<std::size_t>(last), &ours);
    if (::sched_setaffinity(0, sizeof ours, &ours) != 0) return {};
    return last;
}

double resident_bytes() {
    std::ifstream statm("/proc/self/statm");
    std::uint64_t size = 0, resident = 0;
    statm >> size >> resident;
    return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

Streaming measure_streams(BenchServer& server, WebSocketCrowd& crowd, std::uint32_t streams,
                          std::uint32_t tokens_each) {
    (void)crowd.stream(streams, kTokensBefore);
    const ServerTimes before = server.times();
    Streaming result;
    result.heard = crowd.stream(streams, tokens_each);
    const ServerTimes after = server.times();
    const double tokens = static_cast<double>(streams) * tokens_each;
    const auto us_a_token = [&](std::chrono::nanoseconds spent) {
        return std::chrono::duration<double, std::micro>(spent).count() / tokens;
    };
    result.io_us = us_a_token(after.io - before.io);
    result.engine_us = us_a_token(after.engine - before.engine);
    if (result.heard.frames > 0)
        result.tokens_per_frame = tokens / static_cast<double>(result.heard.frames);
    return result;
}

Idle measure_idle(WebSocketCrowd& crowd, std::uint32_t count) {
    const double heap = static_cast<double>(::mallinfo2().uordblks);
    const double resident = resident_bytes();
    Idle result;
    result.sockets = crowd.open(count);
    ::usleep(200'000);  // until the server has sent and forgotten its part of the last handshakes
    if (result.sockets == 0) return result;
    result.heap_bytes = (static_cast<double>(::mallinfo2().uordblks) - heap) / result.sockets;
    result.resident_bytes = (resident_bytes() - resident) / result.sockets;
    return result;
}

BenchServer::Settings settings_of(const GatewayFlags& flags) {
    return {.streams_max = flags.streams,
            .answer_tokens_max = flags.tokens,
            .pace = std::chrono::microseconds(flags.pace_us),
            .tokens_per_step = 1};
}

Result<> measure_alone_and_beside_idle(const GatewayFlags& flags, Measured& result) {
    BenchServer::Settings settings = settings_of(flags);
    settings.answer_tokens_max = kTimesBesideIdle * flags.tokens;
    WebSocketCrowd crowd(flags.clients_on);
    auto server = BenchServer::start(settings);
    if (!server) return server.error();
    crowd.connect_to((*server)->port());
    result.alone = measure_streams(**server, crowd, flags.streams, flags.tokens);
    result.idle = measure_idle(crowd, flags.idle);
    result.beside_idle =
        measure_streams(**server, crowd, flags.streams, kTimesBesideIdle * flags.tokens);
    return {};
}

// The slow ones' answers last as long as the streams beside them.
Result<> measure_beside_slow(const GatewayFlags& flags, Measured& result) {
    BenchServer::Settings settings = settings_of(flags);
    settings.streams_max += flags.slow;
    settings.answer_tokens_max = 2 * (flags.tokens + kTokensBefore);
    WebSocketCrowd crowd(flags.clients_on);
    auto server = BenchServer::start(settings);
    if (!server) return server.error();
    crowd.connect_to((*server)->port());
    result.beside_more = measure_streams(**server, crowd, settings.streams_max, flags.tokens);
    (void)crowd.open_slow(flags.slow, settings.answer_tokens_max);
    result.beside_slow = measure_streams(**server, crowd, flags.streams, flags.tokens);
    return {};
}

Result<> measure_several_a_frame(const GatewayFlags& flags, Measured& result) {
    BenchServer::Settings settings = settings_of(flags);
    settings.tokens_per_step = kTokensTogether;
    WebSocketCrowd crowd(flags.clients_on);
    auto server = BenchServer::start(settings);
    if (!server) return server.error();
    crowd.connect_to((*server)->port());
    result.together = measure_streams(**server, crowd, flags.streams, flags.tokens);
    return {};
}

Result<Measured> measure(const GatewayFlags& flags) {
    Measured result;
    for (const auto& part :
         {measure_alone_and_beside_idle, measure_beside_slow, measure_several_a_frame}) {
        if (const auto done = part(flags, result); !done) return done.error();
    }
    return result;
}

json::object as_json(const Streaming& s) {
    return {{"io_us_per_token", s.io_us},   {"engine_us_per_token", s.engine_us},
            {"frames", s.heard.frames},     {"tokens_per_frame", s.tokens_per_frame},
            {"gap_p50_ms", s.heard.p50_ms}, {"gap_p99_ms", s.heard.p99_ms},
            {"gap_max_ms", s.heard.max_ms}};
}

void print(const char* name, const Streaming& s) {
    fmt::print(
        "  {:<22} {:>6.2f} us a token on the io thread, {:>5.2f} in the scheduler; {:>4.1f} tokens "
        "a "
        "frame; gaps p50 {:.2f} p99 {:.2f} max {:.2f} ms\n",
        name, s.io_us, s.engine_us, s.tokens_per_frame, s.heard.p50_ms, s.heard.p99_ms,
        s.heard.max_ms);
}

int bench_gateway(GatewayFlags flags) {
    const std::uint64_t descriptors = raise_descriptors();
    const std::uint64_t room = descriptors > kOtherDescriptors + flags.streams + flags.slow
                                   ? descriptors - kOtherDescriptors - flags.streams - flags.slow
                                   : 0;
    if (flags.idle > room) {
        fmt::print(stderr,
                   "troupe: a process may have {} descriptors here, so {} idle sockets instead of "
                   "{}: see ulimit -n\n",
                   descriptors, room, flags.idle);
        flags.idle = static_cast<std::uint32_t>(room);
    }
    flags.clients_on = give_a_processor_away();
    const auto measured = measure(flags);
    if (!measured) return report(measured.error());
    const Idle& idle = measured->idle;
    if (flags.as_json) {
        const json::object out{{"streams", flags.streams},
                               {"tokens", flags.tokens},
                               {"alone", as_json(measured->alone)},
                               {"beside_idle", as_json(measured->beside_idle)},
                               {"beside_more", as_json(measured->beside_more)},
                               {"beside_slow", as_json(measured->beside_slow)},
                               {"several_a_frame", as_json(measured->together)},
                               {"idle",
                                {{"sockets", idle.sockets},
                                 {"heap_bytes", idle.heap_bytes},
                                 {"resident_bytes", idle.resident_bytes}}}};
        std::printf("%s\n", json::serialize(out).c_str());
        return exit_ok;
    }
    fmt::print("{} WebSockets with {} tokens each, a step every {} us\n", flags.streams,
               flags.tokens, flags.pace_us);
    print("alone", measured->alone);
    print("beside idle sockets", measured->beside_idle);
    print(fmt::format("and {} more", flags.slow).c_str(), measured->beside_more);
    print(fmt::format("beside {} slow readers", flags.slow).c_str(), measured->beside_slow);
    print("several tokens a frame", measured->together);
    fmt::print("  {} idle sockets: {:.0f} bytes each allocated, {:.0f} resident\n", idle.sockets,
               idle.heap_bytes, idle.resident_bytes);
    return exit_ok;
}

}  // namespace

void add_gateway_bench(Command& bench, Run& run) {
    const auto flags = std::make_shared<GatewayFlags>();
    auto gateway = bench.add_subcommand(
        "gateway", "What a streamed token and an idle WebSocket cost; needs no model");
    gateway.add("--streams", flags->streams, "WebSockets that stream at once").within(1, 256);
    gateway.add("--tokens", flags->tokens, "length of each answer").within(50, 1'000'000);
    gateway.add("--idle", flags->idle, "WebSockets that say nothing").within(0, 28'000);
    gateway.add("--slow", flags->slow, "WebSockets that read 1,000 bytes a second, or nothing")
        .within(0, 256);
    gateway.add("--pace-us", flags->pace_us, "from step to step").within(0, 1'000'000);
    gateway.add_switch("--json", flags->as_json, "print one JSON object");
    gateway.when_chosen([flags, &run] { run = [flags] { return bench_gateway(*flags); }; });
}

}  // namespace troupe::tools
