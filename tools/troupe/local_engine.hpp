// The engine in this process, for the command line: one prompt at a time through the same
// scheduler, cache and backend as the server. The caller's thread plays the io lane.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "actors/engine.hpp"
#include "actors/generation.hpp"
#include "actors/hub.hpp"
#include "runtime/thread.hpp"
#include "tools/troupe/model_loading.hpp"

namespace troupe::tools {

// What tells requests of one process apart.
struct RequestPlace {
    std::uint32_t answer_index = 0;
    std::uint64_t cache_salt = 0;
};

class LocalEngine {
 public:
    LocalEngine(const LoadedModel& loaded, model::Backend& backend,
                const actors::SpeculationSettings& speculation = {});
    ~LocalEngine();
    LocalEngine(const LocalEngine&) = delete;
    LocalEngine& operator=(const LocalEngine&) = delete;

    // Runs one request to its end; `on_text` gets the text as it grows. A raised `stop` flag ends
    // it within a step.
    actors::Generation generate(
        std::vector<model::TokenId> prompt, const model::DecodingParams& params,
        const std::function<void(std::string_view)>& on_text,
        std::shared_ptr<runtime::StopFlag> stop = runtime::StopFlag::make());

    // Of `count` answers made at once the one with the best mean log-probability, or one that
    // failed.
    actors::Generation generate_best(const std::vector<model::TokenId>& prompt,
                                     const model::DecodingParams& params, std::uint32_t count);

    // The parts of generate(), for several requests at once: `handler` hears the request's events
    // while run_one() is called.
    void submit(actors::SessionHandler& handler, std::vector<model::TokenId> prompt,
                const model::DecodingParams& params,
                std::shared_ptr<runtime::StopFlag> stop = runtime::StopFlag::make(),
                RequestPlace place = {});
    void run_one() { io_.context().run_one(); }
    [[nodiscard]] const actors::EngineStats& stats() const { return engine_.stats(); }
    void cancel_all();

 private:
    struct Live {
        actors::SessionId session;
        actors::RequestId request;
        std::shared_ptr<runtime::StopFlag> stop;
    };

    const model::Tokenizer& tokenizer_;
    runtime::SteadyClock clock_;
    runtime::NamedThread io_;
    runtime::NamedThread engine_lane_;
    runtime::NamedThread executor_lane_;
    runtime::Mailbox<actors::HubMessage> inbox_;
    actors::Engine engine_;
    actors::SessionHub hub_;
    std::vector<Live> live_;
};

}  // namespace troupe::tools
