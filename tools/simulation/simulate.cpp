#include "tools/simulation/simulate.hpp"

#include <algorithm>
#include <chrono>
#include <memory>

#include "actors/engine.hpp"
#include "model/drafting_backend.hpp"
#include "runtime/sim.hpp"
#include "runtime/timer.hpp"
#include "tools/simulation/fake_backend.hpp"
#include "tools/simulation/fake_clients.hpp"
#include "tools/simulation/letter_tokenizer.hpp"

namespace troupe::simulation {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kHubs = 2;
constexpr std::size_t kFailuresMax = 20;       // a broken rule breaks at every step
constexpr runtime::Duration kWorkTime = 600s;  // virtual, with faults
constexpr runtime::Duration kRestTime = 120s;  // virtual, to come to rest without them

// Everything of one run. Members in order of dependence: the simulation first, to be destroyed
// last.
class World {
 public:
    World(std::uint64_t seed, const Options& options)
        : simulation_({.seed = seed, .faults = options.faults}),
          executor_lane_(simulation_.add_lane("executor")),
          engine_lane_(simulation_.add_lane("engine")),
          backend_options_(make_backend_options()),
          backend_(make_backend()) {
        const model::BackendInfo& info = backend_->info();
        actors::SchedulerSettings described;
        described.describe(info);
        server_.room = {.sequence_tokens_max = described.sequence_tokens_max(),
                        .pages_total = info.pages_total,
                        .vocabulary_size = info.vocabulary_size,
                        .window = info.window};
        server_.slot_count = std::min(info.slots_max, info.tokens_per_step_max);
        std::vector<runtime::Address<actors::HubMessage>> hubs;
        for (std::uint32_t hub = 0; hub < kHubs; ++hub) {
            runtime::SimLane& lane = simulation_.add_lane("io-" + std::to_string(hub));
            clients_.push_back(
                std::make_unique<FakeClients>(simulation_, lane, hub, server_, report_.failures));
            hubs.push_back(clients_.back()->address());
        }
        engine_ = std::make_unique<actors::Engine>(
            make_settings(), *backend_, engine_lane_, executor_lane_, std::move(hubs),
            [this](const std::string&) { server_.closing = true; });
        report_.seed = seed;
    }

    Report run(std::uint32_t requests) {
        engine_->start();
        for (auto& clients : clients_)
            clients->start(engine_->scheduler(), requests / kHubs);
        if (simulation_.fault_on("shutdown")) engine_lane_.spawn("shutdown", shut_down_midway());
        const auto all_done = [this] {
            return std::ranges::all_of(clients_, [](const auto& c) { return c->done(); });
        };
        expect(
            simulation_.run_until(all_done, simulation_.now() + kWorkTime) == runtime::RunEnd::done,
            "the work does not end in time");
        simulation_.stop_faults();
        server_.closing = true;
        engine_->shutdown(simulation_.now() + 1s);
        expect(rest(), "the engine does not come to rest");
        for (auto& clients : clients_)
            clients->close();
        expect(rest(), "the clients do not come to rest");
        check_the_end();
        return std::move(report_);
    }

 private:
    FakeBackendOptions make_backend_options() {
        Random& random = simulation_.random();
        FakeBackendOptions options;
        options.slots_max = static_cast<std::uint32_t>(random.between(1, 8));
        const bool tiny = simulation_.fault_on("tiny_pool");
        options.pages_total = static_cast<std::uint32_t>(tiny ? random.between(6, 14) : 200);
        options.tokens_per_step_max = static_cast<std::uint32_t>(random.between(8, 128));
        options.row_ns = random.between(0, 200'000);
        if (random.chance(0.4)) {
            options.window = {static_cast<std::uint32_t>(random.between(2, 60)),
                              static_cast<std::uint32_t>(random.between(0, 40))};
        }
        options.spend = [this](std::int64_t ns) {
            executor_lane_.block_for(runtime::Duration(ns));
        };
        options.fail_step = [this] { return simulation_.chance("step_error", 0.005); };
        options.fail_row = [this] { return simulation_.chance("row_error", 0.001); };
        return options;
    }

    // A fake model, or one with another beside it that drafts for it and is often of one mind.
    std::unique_ptr<model::Backend> make_backend() {
        auto target = std::make_unique<FakeBackend>(backend_options_);
        fakes_.push_back(target.get());
        if (simulation_.random().chance(0.5)) return target;
        FakeBackendOptions options = backend_options_;
        options.tokens_per_step_max += options.slots_max;
        options.step_ns /= 10;
        options.row_ns /= 10;
        options.disagree = [this] { return simulation_.random().chance(0.2); };
        auto draft = std::make_unique<FakeBackend>(std::move(options));
        fakes_.push_back(draft.get());
        return std::make_unique<model::DraftingBackend>(std::move(target), std::move(draft));
    }

    actors::EngineSettings make_settings() {
        Random& random = simulation_.random();
        actors::EngineSettings settings;
        settings.scheduler.end_tokens = {kEndToken};
        settings.scheduler.tokenizer = &tokenizer_;
        settings.scheduler.waiting_max = static_cast<std::uint32_t>(random.between(2, 30));
        settings.scheduler.waiting_per_principal_max = 20;
        settings.scheduler.pipeline_depth = static_cast<std::uint32_t>(random.between(1, 2));
        settings.scheduler.speculation.lookup = random.chance(0.8);
        settings.scheduler.speculation.model = random.chance(0.8);
        settings.restarts_max = random.chance(0.5) ? 1'000 : 3;
        settings.after_step = [this](const actors::Scheduler& scheduler) {
            const std::string broken = scheduler.check_integrity();
            expect(broken.empty(), broken);
            for (const FakeBackend* fake : fakes_)
                expect(fake->breach().empty(), fake->breach());
            engine_lane_.note("step", scheduler.live_count());
        };
        return settings;
    }

    boost::asio::awaitable<void> shut_down_midway() {
        Random& random = simulation_.random();
        co_await runtime::sleep_for(engine_lane_,
                                    runtime::Duration(random.between(0, 800'000'000)));
        if (!simulation_.chance("shutdown", 0.5)) co_return;
        server_.closing = true;
        engine_->shutdown(simulation_.now() + runtime::Duration(random.between(0, 500'000'000)));
    }

    bool rest() {
        const auto end = simulation_.run_until_quiescent(simulation_.now() + kRestTime);
        return end == runtime::RunEnd::quiescent;
    }

    void check_the_end() {
        for (auto& clients : clients_) {
            clients->check_all_ended();
            report_.requests += clients->submitted();
            report_.tokens += clients->tokens_heard();
        }
        for (const auto& failure : simulation_.failures()) {
            expect(false, failure.coroutine + " threw: " + failure.what);
        }
        const actors::EngineStats& stats = engine_->stats();
        expect(stats.requests_running.get() == 0, "a request still runs");
        expect(stats.requests_waiting.get() == 0, "a request still waits");
        expect(stats.kv_pages_leased.get() == 0, "a page is still leased");
        std::uint64_t answered = 0;
        for (const auto& finished : stats.finished_total)
            answered += finished.get();
        for (const auto& rejected : stats.rejected_total)
            answered += rejected.get();
        expect(answered <= report_.requests, "more terminal events than requests");
        report_.steps = stats.steps_total.get();
        report_.preemptions = stats.preemptions_total.get();
        report_.restarts = stats.restarts_total.get();
        report_.draft_tokens = stats.draft_tokens_total.get();
        report_.accepted_tokens = stats.accepted_tokens_total.get();
        report_.prefix_hit_tokens = stats.prefix_hit_tokens_total.get();
        report_.virtual_ms = simulation_.now().time_since_epoch() / 1ms;
        report_.digest = simulation_.trace().digest();
        report_.description = simulation_.description();
        if (!report_.failures.empty()) report_.trace = simulation_.trace().text();
    }

    void expect(bool rule, const std::string& what) {
        if (!rule && report_.failures.size() < kFailuresMax) report_.failures.push_back(what);
    }

    runtime::Simulation simulation_;
    runtime::SimLane& executor_lane_;
    runtime::SimLane& engine_lane_;
    const LetterTokenizer tokenizer_;
    FakeBackendOptions backend_options_;
    std::vector<FakeBackend*> fakes_;  // of backend_
    std::unique_ptr<model::Backend> backend_;
    ServerFacts server_;
    Report report_;
    std::vector<std::unique_ptr<FakeClients>> clients_;
    std::unique_ptr<actors::Engine> engine_;
};

}  // namespace

Report simulate(std::uint64_t seed, const Options& options) {
    World world(seed, options);
    return world.run(options.requests);
}

}  // namespace troupe::simulation
