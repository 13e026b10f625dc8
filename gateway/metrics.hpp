// The numbers behind /metrics: the engine's statistics and the gateway's own, as Prometheus text.
// Lives on an io thread; the engine's numbers are read while the engine writes them, each right by
// itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/engine_stats.hpp"

namespace troupe::gateway {

// What others count, gathered for one reply.
struct MetricsSources {
    struct KeyTokens {
        std::string key;  // its name
        std::uint64_t tokens = 0;
    };

    const actors::EngineStats* engine = nullptr;  // null while there is none: its part is missing
    std::uint64_t unread_bytes = 0;               // of all connections
    std::uint64_t resumes = 0;
    std::vector<KeyTokens> tokens_of_keys = {};
};

class Metrics {
 public:
    void connection_opened() { ++connections_; }
    void connection_closed() { --connections_; }
    // A client that read too slowly was cut off.
    void slow_client_closed() { ++slow_clients_; }

    // Prometheus text exposition format, version 0.0.4.
    [[nodiscard]] std::string text(const MetricsSources& sources) const;

 private:
    std::int64_t connections_ = 0;
    std::uint64_t slow_clients_ = 0;
};

}  // namespace troupe::gateway
