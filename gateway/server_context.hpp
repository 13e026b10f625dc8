// What every connection of an io thread shares: settings, the hub, the served model, the numbers
// for /metrics, and the table of open connections. Lives on that io thread, touched by it alone.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/hub.hpp"
#include "gateway/access.hpp"
#include "gateway/client_stream.hpp"
#include "gateway/connection_table.hpp"
#include "gateway/ephemeral_keys.hpp"
#include "gateway/metrics.hpp"
#include "gateway/served_model.hpp"
#include "gateway/tls.hpp"
#include "gateway/write_round.hpp"
#include "model/load_progress.hpp"
#include "runtime/clock.hpp"
#include "runtime/lane.hpp"

namespace troupe::gateway {

struct ServerSettings {
    std::string host = "127.0.0.1";
    std::uint16_t port = 8080;  // 0: any free one
    KeyRing keys;
    AllowLists allow;
    std::vector<std::string> trusted_proxies;  // addresses whose X-Forwarded-For counts
    std::shared_ptr<const TlsContext> tls;     // null: plain HTTP
    std::string version = "0.1.0";

    std::size_t header_bytes_max = 16 << 10;
    std::size_t target_bytes_max = 8 << 10;
    std::uint32_t connections_max = 12'000;
    std::uint32_t sockets_per_client_max = 8;     // WebSockets of one key or one browser
    std::uint32_t sockets_per_address_max = 256;  // of an address alone: many may stand behind it
    std::uint32_t messages_per_minute = 60;       // of one WebSocket, on average
    std::uint32_t messages_burst = 600;
    std::size_t pending_bytes_max = 1 << 20;  // unread answers of one client
    std::chrono::seconds handshake_timeout{5};
    std::chrono::seconds keep_alive_timeout{75};
    std::chrono::seconds auth_timeout{5};
    std::chrono::seconds idle_timeout{600};
    std::chrono::seconds life_max{3600};
    std::chrono::seconds body_timeout{30};
    std::chrono::seconds write_timeout{30};
    std::chrono::seconds goodbye_timeout{2};
    std::chrono::seconds heartbeat{20};
    std::chrono::seconds sse_comment_interval{15};
    std::chrono::seconds look_interval{1};  // at what is at work
};

// What there is once the model is loaded.
struct Serving {
    const ServedModel& model;
    actors::SessionHub& hub;  // of this io thread
    const actors::EngineStats& stats;
    std::vector<runtime::Lane*> traced = {};  // for /debug/trace
};

struct ServerContext {
    const ServerSettings& settings;
    runtime::Lane& io;
    const runtime::Clock& clock;
    Metrics& metrics;
    const model::LoadProgress& loading;
    EphemeralKeys ephemeral_keys{};
    const Serving* serving = nullptr;  // null while the model loads
    bool draining = false;
    ConnectionTable connections{};
    std::unordered_map<std::uint64_t, std::uint32_t> sockets_of_principal{};
    double head_start = 0;  // of the last WebSocket, in heartbeats
    WriteRound writes{io};  // last, because it may hold connections

    // Up to half a heartbeat, by which a new WebSocket's first ping comes sooner: thousands that
    // were opened at once are not pinged at once. Steps of the golden ratio lie evenly.
    runtime::Duration next_head_start() {
        head_start = std::fmod(head_start + 0.618033988749895, 1.0);
        return std::chrono::duration_cast<runtime::Duration>(head_start / 2 * settings.heartbeat);
    }
};

// Whom a request comes from, once Host, Origin and keys are judged.
struct Client {
    actors::Principal principal;
    bool keyed = false;         // by key or cookie, not by address alone
    bool authenticated = true;  // false: keys are configured and this client showed none
    bool admin = false;
    std::optional<Digest> key = {};  // on whose account it is here
    bool ephemeral = false;          // by a short-lived key
};

}  // namespace troupe::gateway
