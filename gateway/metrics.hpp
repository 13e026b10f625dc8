// The numbers behind /metrics: the engine's statistics and the gateway's own, as Prometheus text.
// Lives on an io thread; the engine's numbers are read while the engine writes them, each right by
// itself.
#pragma once

#include <cstdint>
#include <string>

#include "actors/engine_stats.hpp"

namespace troupe::gateway {

class Metrics {
 public:
    void connection_opened() { ++connections_; }
    void connection_closed() { --connections_; }
    // A client that has read too slowly is cut off.
    void slow_client_closed() { ++slow_clients_; }

    // Prometheus text exposition format, version 0.0.4. The engine's part is missing while there is
    // no engine.
    [[nodiscard]] std::string text(const actors::EngineStats* engine) const;

 private:
    std::int64_t connections_ = 0;
    std::uint64_t slow_clients_ = 0;
};

}  // namespace troupe::gateway
