#include "tools/troupe/local_engine.hpp"

#include <algorithm>
#include <utility>

#include "actors/limits.hpp"
#include "runtime/base/log.hpp"

namespace troupe::tools {
namespace {

void report_failure(const runtime::LaneFailure& failure) {
    log::error("{} on {} failed: {}", failure.coroutine, failure.lane, failure.what);
}

actors::EngineSettings settings_for(const LoadedModel& loaded,
                                    const actors::SpeculationSettings& speculation) {
    actors::EngineSettings settings;
    settings.scheduler.speculation = speculation;
    const auto ends = loaded.tokenizer->end_tokens();
    settings.scheduler.end_tokens.assign(ends.begin(), ends.end());
    settings.scheduler.tokenizer = loaded.tokenizer.get();
    return settings;
}

// Hears one request's events.
class Listener final : public actors::SessionHandler {
 public:
    Listener(actors::Generation& generation, const std::function<void(std::string_view)>& on_text)
        : generation_(generation), on_text_(on_text) {}

    void on_event(const actors::SessionEvent& event, const actors::Delivery& delivery) override {
        if (const auto* run = std::get_if<actors::TokenRun>(&event)) generation_.on(*run, delivery);
        if (const auto* end = std::get_if<actors::Finished>(&event)) generation_.on(*end);
        if (const auto* no = std::get_if<actors::Rejected>(&event)) generation_.on(*no);
    }
    void on_delivered() override {
        if (on_text_ && shown_ < generation_.text().size())
            on_text_(std::string_view(generation_.text()).substr(shown_));
        shown_ = generation_.text().size();
    }
    void on_shutdown() override {}

 private:
    actors::Generation& generation_;
    const std::function<void(std::string_view)>& on_text_;
    std::size_t shown_ = 0;
};

const std::function<void(std::string_view)> kNobody;

}  // namespace

LocalEngine::LocalEngine(const LoadedModel& loaded, model::Backend& backend,
                         const actors::SpeculationSettings& speculation)
    : tokenizer_(*loaded.tokenizer),
      io_("main", clock_, report_failure),
      engine_lane_("engine", clock_, report_failure),
      executor_lane_("executor", clock_, report_failure),
      inbox_(actors::limits::hub_mailbox(backend.info().context_length)),
      engine_(settings_for(loaded, speculation), backend, engine_lane_, executor_lane_,
              {runtime::Address<actors::HubMessage>(inbox_)}, [](const std::string&) {}),
      hub_({}, engine_.scheduler(), {}) {
    engine_.start();
    engine_lane_.start();
    executor_lane_.start();
    io_.spawn("hub", actors::run_hub(io_, hub_, inbox_));
}

LocalEngine::~LocalEngine() {
    for (const Live& live : live_)
        hub_.leave(live.session);
    engine_.shutdown(clock_.now());
    engine_lane_.finish();
    executor_lane_.finish();
    engine_lane_.join();
    executor_lane_.join();
}

actors::Generation LocalEngine::generate(std::vector<model::TokenId> prompt,
                                         const model::DecodingParams& params,
                                         const std::function<void(std::string_view)>& on_text,
                                         std::shared_ptr<runtime::StopFlag> stop) {
    actors::Generation generation(tokenizer_, params);
    Listener listener(generation, on_text);
    submit(listener, std::move(prompt), params, std::move(stop));
    while (!generation.ended())
        io_.context().run_one();
    hub_.leave(live_.back().session);
    live_.pop_back();
    return generation;
}

actors::Generation LocalEngine::generate_best(const std::vector<model::TokenId>& prompt,
                                              const model::DecodingParams& params,
                                              std::uint32_t count) {
    model::DecodingParams asked = params;
    asked.logprobs = true;  // to rank by, whether they are shown or not
    std::vector<actors::Generation> answers;
    std::vector<Listener> listeners;
    answers.reserve(count);
    listeners.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
        listeners.emplace_back(answers.emplace_back(tokenizer_, params), kNobody);
        submit(listeners.back(), prompt, asked, runtime::StopFlag::make(), {.answer_index = i});
    }
    while (!std::ranges::all_of(answers, &actors::Generation::ended))
        io_.context().run_one();
    for (; count > 0; --count) {
        hub_.leave(live_.back().session);
        live_.pop_back();
    }
    const auto failed = std::ranges::find_if(
        answers, [](const actors::Generation& answer) { return answer.error().has_value(); });
    if (failed != answers.end()) return std::move(*failed);
    return std::move(*std::ranges::max_element(answers, {}, &actors::Generation::mean_logprob));
}

void LocalEngine::submit(actors::SessionHandler& handler, std::vector<model::TokenId> prompt,
                         const model::DecodingParams& params,
                         std::shared_ptr<runtime::StopFlag> stop, RequestPlace place) {
    actors::Submit request;
    const auto session = hub_.join(handler);
    request.reply_to = hub_.address_of(session);
    request.request = hub_.next_request();
    request.prompt = std::move(prompt);
    request.params = params;
    request.answer_index = place.answer_index;
    request.cache_salt = place.cache_salt;
    request.stop = stop;
    live_.push_back({session, request.request, std::move(stop)});
    hub_.submit(std::move(request));
}

void LocalEngine::cancel_all() {
    for (const Live& live : live_) {
        live.stop->request(runtime::StopReason::cancelled);
        hub_.cancel(live.request);
    }
}

}  // namespace troupe::tools
