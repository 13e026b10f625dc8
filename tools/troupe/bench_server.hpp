// The server in this process for `troupe bench gateway`: the real gateway and engine on the toy's
// words, with a backend that draws them at a given pace and at no cost.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "actors/engine.hpp"
#include "actors/hub.hpp"
#include "gateway/server.hpp"
#include "model/backend.hpp"
#include "model/load_progress.hpp"
#include "runtime/thread.hpp"
#include "tools/troupe/model_loading.hpp"

namespace troupe::tools {

// Processor time of the server's threads since they began.
struct ServerTimes {
    std::chrono::nanoseconds io{};      // sockets, sessions, JSON
    std::chrono::nanoseconds engine{};  // the scheduler
};

class BenchServer {
 public:
    struct Settings {
        std::uint32_t streams_max = 32;
        std::uint32_t answer_tokens_max = 4096;
        std::chrono::microseconds pace{10'000};  // from step to step
        std::uint32_t tokens_per_step = 1;       // of each stream: more are drafts that are right
    };

    [[nodiscard]] static Result<std::unique_ptr<BenchServer>> start(const Settings& settings);
    ~BenchServer();
    BenchServer(const BenchServer&) = delete;
    BenchServer& operator=(const BenchServer&) = delete;

    [[nodiscard]] std::uint16_t port() const { return server_->port(); }
    [[nodiscard]] ServerTimes times();

 private:
    BenchServer(const Settings& settings, LoadedModel loaded);
    [[nodiscard]] actors::EngineSettings engine_settings(const Settings& settings) const;
    [[nodiscard]] actors::HubSettings hub_settings() const;

    LoadedModel loaded_;
    model::LoadProgress loading_;  // of which nobody hears: the toy is there at once
    runtime::SteadyClock clock_;
    runtime::NamedThread io_;
    runtime::NamedThread engine_lane_;
    runtime::NamedThread executor_lane_;
    std::unique_ptr<model::Backend> backend_;
    gateway::ServedModel served_;
    runtime::Mailbox<actors::HubMessage> inbox_;
    actors::Engine engine_;
    actors::SessionHub hub_;
    std::unique_ptr<gateway::Server> server_;
};

}  // namespace troupe::tools
