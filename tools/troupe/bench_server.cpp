#include "tools/troupe/bench_server.hpp"

#include <ctime>

#include <boost/asio/post.hpp>
#include <deque>
#include <future>
#include <thread>
#include <utility>

#include "actors/limits.hpp"
#include "gateway/wire_response.hpp"
#include "runtime/base/log.hpp"

namespace troupe::tools {
namespace {

constexpr model::TokenId kWord = 2;  // " cat": as long as most tokens are
constexpr std::uint32_t kPromptTokensMax = 16;

class PacedBackend final : public model::Backend {
 public:
    PacedBackend(const BenchServer::Settings& settings, std::int32_t vocabulary_size)
        : pace_(settings.pace) {
        info_.kind = "paced";
        info_.vocabulary_size = vocabulary_size;
        info_.context_length = kPromptTokensMax + settings.answer_tokens_max;
        info_.slots_max = settings.streams_max;
        info_.pages_total = settings.streams_max * (info_.context_length / model::kPageTokens + 2);
        info_.tokens_per_step_max = settings.streams_max * (settings.tokens_per_step + 1) + 512;
        info_.kv_bytes_per_token = 1;
    }

    [[nodiscard]] const model::BackendInfo& info() const override { return info_; }
    void submit(const model::StepPlan& plan) override { outstanding_.push_back(&plan); }
    void wait(model::StepResult& result) override {
        const auto now = std::chrono::steady_clock::now();
        if (next_ > now) std::this_thread::sleep_until(next_);
        next_ = std::max(next_, now) + pace_;
        result.clear();
        for (const model::SequenceStep& step : outstanding_.front()->sequences) {
            const auto begin = static_cast<std::uint32_t>(result.sampled.size());
            result.sequences.push_back(
                {.slot = step.slot, .sampled_begin = begin, .sampled_count = step.sample_count});
            result.sampled.resize(begin + step.sample_count, {.id = kWord});
        }
        result.compute_ns = 1'000'000;  // whatever the rows: drafts are free
        outstanding_.pop_front();
    }
    void reset() override {}

 private:
    const std::chrono::microseconds pace_;
    model::BackendInfo info_;
    std::deque<const model::StepPlan*> outstanding_;
    std::chrono::steady_clock::time_point next_{};
};

void report_failure(const runtime::LaneFailure& failure) {
    log::error("{} on {} failed: {}", failure.coroutine, failure.lane, failure.what);
}

std::chrono::nanoseconds time_of(runtime::Lane& lane) {
    std::promise<std::chrono::nanoseconds> spent;
    boost::asio::post(lane.executor(), [&spent] {
        timespec time{};
        ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        spent.set_value(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
    });
    return spent.get_future().get();
}

}  // namespace

Result<std::unique_ptr<BenchServer>> BenchServer::start(const Settings& settings) {
    auto loaded = load_model("toy");
    if (!loaded) return loaded.error();
    std::unique_ptr<BenchServer> bench(new BenchServer(settings, std::move(*loaded)));
    gateway::ServerSettings edge;
    edge.port = 0;
    edge.connections_max = 100'000;
    edge.sockets_per_address_max = 100'000;
    auto server = gateway::Server::listen(bench->io_, std::move(edge), bench->loading_);
    if (!server) return server.error();
    bench->server_ = std::move(*server);
    bench->engine_.start();
    bench->io_.spawn("hub", actors::run_hub(bench->io_, bench->hub_, bench->inbox_));
    bench->server_->start();
    bench->server_->ready({bench->served_, bench->hub_, bench->engine_.stats()});
    bench->io_.start();
    bench->engine_lane_.start();
    bench->executor_lane_.start();
    return bench;
}

BenchServer::BenchServer(const Settings& settings, LoadedModel loaded)
    : loaded_(std::move(loaded)),
      io_("io-0", clock_, report_failure),
      engine_lane_("engine", clock_, report_failure),
      executor_lane_("executor", clock_, report_failure),
      backend_(std::make_unique<PacedBackend>(settings, loaded_.tokenizer->vocabulary_size())),
      served_{.tokenizer = *loaded_.tokenizer,
              .chat_template = *loaded_.chat_template,
              .id = loaded_.id,
              .context_length = backend_->info().context_length},
      inbox_(actors::limits::hub_mailbox(backend_->info().context_length)),
      engine_(engine_settings(settings), *backend_, engine_lane_, executor_lane_,
              {runtime::Address<actors::HubMessage>(inbox_)}, [](const std::string&) {}),
      hub_(hub_settings(), engine_.scheduler(), [this](auto work, auto done) {
          boost::asio::post(io_.executor(), [work, done] {
              work();
              done();
          });
      }) {}

actors::EngineSettings BenchServer::engine_settings(const Settings& settings) const {
    actors::EngineSettings engine;
    engine.scheduler.tokenizer = loaded_.tokenizer.get();
    engine.scheduler.speculation.lookup = settings.tokens_per_step > 1;
    engine.scheduler.speculation.tokens_max = settings.tokens_per_step - 1;
    return engine;
}

actors::HubSettings BenchServer::hub_settings() const {
    actors::HubSettings hub;
    hub.write_response = [this](const actors::Response& response) {
        std::string json;
        gateway::append_response(json, response, served_);
        return json;
    };
    return hub;
}

BenchServer::~BenchServer() {
    if (server_ == nullptr) return;
    server_->stop();
    engine_.shutdown(clock_.now());
    for (runtime::NamedThread* lane : {&engine_lane_, &executor_lane_, &io_}) {
        if (lane == &io_) inbox_.close();
        lane->finish();
        lane->join();
    }
}

ServerTimes BenchServer::times() {
    return {.io = time_of(io_), .engine = time_of(engine_lane_)};
}

}  // namespace troupe::tools
