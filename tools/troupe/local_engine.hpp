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

    // The parts of generate(), for several requests at once: `handler` hears the request's events
    // while run_one() is called.
    void submit(actors::SessionHandler& handler, std::vector<model::TokenId> prompt,
                const model::DecodingParams& params,
                std::shared_ptr<runtime::StopFlag> stop = runtime::StopFlag::make());
    void run_one() { io_.context().run_one(); }
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
