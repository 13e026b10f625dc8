// Goal: the simulator is deterministic, explores many interleavings, and its time is exact. Method:
// a toy of three actors on three lanes (client -> engine -> executor -> engine -> client), run by
// seed.
#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <set>
#include <thread>
#include <variant>

#include "runtime/address.hpp"
#include "runtime/mailbox.hpp"
#include "runtime/sim.hpp"
#include "runtime/thread.hpp"
#include "tests/runtime/support.hpp"

namespace asio = boost::asio;
using namespace troupe::runtime;
using namespace std::chrono_literals;

namespace {

constexpr int requests_total = 12;

struct Submit {
    int request = 0;
};
struct StepResult {
    std::vector<int> requests;
};
using EngineMessage = std::variant<Submit, StepResult>;
struct Plan {
    std::vector<int> requests;
};
struct Finished {
    int request = 0;
};

// Knows lanes only: the same actors run in the simulator and on threads. `device` stands for a step
// of the model and may block.
class Toy {
 public:
    Toy(Lane& io, Lane& engine, Lane& executor, std::function<void()> device)
        : io_(io), engine_(engine), executor_(executor), device_(std::move(device)) {
        io_.spawn("submit", submit());
        io_.spawn("finish", finish());
        engine_.spawn("engine", run_engine());
        executor_.spawn("executor", run_executor());
    }

    std::vector<int> finished;             // on io
    std::vector<std::size_t> batch_sizes;  // on engine

 private:
    asio::awaitable<void> submit() {
        for (int request = 0; request < requests_total; ++request) {
            engine_inbox_.send(Submit{request});
            if (request % 3 == 2) {
                co_await sleep_for(io_, 1ms);
            } else {
                co_await io_.yield();
            }
        }
    }

    asio::awaitable<void> finish() {
        std::vector<Finished> batch;
        while (co_await io_inbox_.receive_all(batch)) {
            for (const Finished& message : batch)
                finished.push_back(message.request);
            if (finished.size() == requests_total) engine_inbox_.close();
        }
    }

    asio::awaitable<void> run_engine() {
        std::vector<EngineMessage> batch;
        std::vector<int> waiting;
        bool busy = false;
        while (co_await engine_inbox_.receive_all(batch)) {
            for (EngineMessage& message : batch) {
                if (const auto* submitted = std::get_if<Submit>(&message)) {
                    waiting.push_back(submitted->request);
                } else {
                    busy = false;
                    for (const int request : std::get<StepResult>(message).requests) {
                        io_inbox_.send(Finished{request});
                    }
                }
            }
            if (busy || waiting.empty()) continue;
            busy = true;
            batch_sizes.push_back(waiting.size());
            executor_inbox_.send(Plan{std::exchange(waiting, {})});
        }
        executor_inbox_.close();
        io_inbox_.close();
    }

    asio::awaitable<void> run_executor() {
        std::vector<Plan> batch;
        while (co_await executor_inbox_.receive_all(batch)) {
            for (Plan& plan : batch) {
                auto result = co_await run_blocking(executor_, [&] {
                    device_();
                    return StepResult{std::move(plan.requests)};
                });
                engine_inbox_.send(std::move(result));
            }
        }
    }

    Lane& io_;
    Lane& engine_;
    Lane& executor_;
    const std::function<void()> device_;
    Mailbox<EngineMessage> engine_inbox_{{.normal_max = requests_total + 1, .control_max = 0}};
    Mailbox<Plan> executor_inbox_{{.normal_max = 1, .control_max = 0}};
    Mailbox<Finished> io_inbox_{{.normal_max = requests_total, .control_max = 0}};
};

struct SimulatedToy {
    explicit SimulatedToy(const SimulationOptions& options) : sim(options) {}

    Simulation sim;
    SimLane& io = sim.add_lane("io-0");
    SimLane& engine = sim.add_lane("engine");
    SimLane& executor = sim.add_lane("executor");
    Toy toy{io, engine, executor,
            [this] { executor.block_for(2ms + (sim.chance("slow_step", 0.3) ? 7ms : 0ms)); }};
};

}  // namespace

TEST_CASE("the same seed gives the same run, other seeds other runs", "[runtime][sim]") {
    constexpr std::uint64_t seeds = 500;
    std::set<std::uint64_t> digests;
    std::set<std::vector<std::size_t>> batchings;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SimulatedToy first({.seed = seed});
        SimulatedToy second({.seed = seed});
        INFO(first.sim.description());
        REQUIRE(first.sim.run_until_quiescent(TimePoint(1h)) == RunEnd::quiescent);
        REQUIRE(second.sim.run_until_quiescent(TimePoint(1h)) == RunEnd::quiescent);
        REQUIRE(first.toy.finished.size() == requests_total);
        REQUIRE(std::set(first.toy.finished.begin(), first.toy.finished.end()).size() ==
                requests_total);
        REQUIRE(first.sim.failures().empty());
        REQUIRE(first.sim.trace().digest() == second.sim.trace().digest());
        REQUIRE(first.sim.trace().events() == second.sim.trace().events());
        REQUIRE(first.toy.batch_sizes == second.toy.batch_sizes);
        digests.insert(first.sim.trace().digest());
        batchings.insert(first.toy.batch_sizes);
    }
    CHECK(digests.size() > seeds * 9 / 10);
    CHECK(batchings.size() > 20);  // and the actors see the difference
}

TEST_CASE("the order of lanes differs between seeds without any fault", "[runtime][sim]") {
    constexpr std::uint64_t seeds = 200;
    std::set<std::uint64_t> digests;
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
        SimulatedToy run({.seed = seed, .faults = false});
        REQUIRE(run.sim.run_until_quiescent(TimePoint(1h)) == RunEnd::quiescent);
        REQUIRE(run.toy.finished.size() == requests_total);
        digests.insert(run.sim.trace().digest());
    }
    CHECK(digests.size() > seeds * 9 / 10);
}

TEST_CASE("what runs in the simulator runs on threads", "[runtime][sim][threads]") {
    const SteadyClock clock;
    troupe::test::FailureLog log;
    NamedThread io("io-0", clock, log.handler());
    NamedThread engine("engine", clock, log.handler());
    NamedThread executor("executor", clock, log.handler());
    Toy toy(io, engine, executor, [] { std::this_thread::sleep_for(100us); });
    for (NamedThread* lane : {&io, &engine, &executor})
        lane->start();
    for (NamedThread* lane : {&io, &engine, &executor})
        lane->finish();
    for (NamedThread* lane : {&io, &engine, &executor})
        lane->join();
    CHECK(toy.finished.size() == requests_total);
    CHECK(std::accumulate(toy.batch_sizes.begin(), toy.batch_sizes.end(), std::size_t{0}) ==
          requests_total);
    CHECK(log.failures().empty());
}

TEST_CASE("a blocking wait ends at its virtual end and holds up its own lane only",
          "[runtime][sim]") {
    Simulation sim({.seed = 3, .faults = false});
    SimLane& executor = sim.add_lane("executor");
    SimLane& engine = sim.add_lane("engine");
    std::vector<std::pair<std::string, TimePoint>> story;
    const auto tell = [&](std::string who) { story.emplace_back(std::move(who), sim.now()); };
    const auto wait = [&]() -> asio::awaitable<void> {
        const int result = co_await run_blocking(executor, [&] {
            executor.block_for(10ms);
            return 42;
        });
        tell("waited " + std::to_string(result));
    };
    const auto post_to_executor = [&]() -> asio::awaitable<void> {
        co_await sleep_for(engine, 4ms);
        tell("engine");
        asio::post(executor.context(), [&] { tell("posted"); });
    };
    executor.spawn("wait", wait());
    engine.spawn("post", post_to_executor());
    CHECK(sim.run_until_quiescent(TimePoint(1s)) == RunEnd::quiescent);
    CHECK(story == std::vector<std::pair<std::string, TimePoint>>{{"engine", TimePoint(4ms)},
                                                                  {"waited 42", TimePoint(10ms)},
                                                                  {"posted", TimePoint(10ms)}});
}

TEST_CASE("a run says why it ended", "[runtime][sim]") {
    Simulation sim({.seed = 3, .faults = false, .handlers_per_instant_max = 100});
    SimLane& lane = sim.add_lane("io-0");
    CHECK(sim.run_until_quiescent(TimePoint(1s)) == RunEnd::quiescent);
    const auto tick = [&lane](int ticks) -> asio::awaitable<void> {
        for (int i = 0; i < ticks; ++i)
            co_await sleep_for(lane, 1s);
    };
    const auto spin = [&lane]() -> asio::awaitable<void> {
        for (;;)
            co_await lane.yield();
    };
    lane.spawn("tick", tick(1000));
    CHECK(sim.run_until_quiescent(TimePoint(2500ms)) == RunEnd::deadline);
    CHECK(sim.now() == TimePoint(2500ms));
    CHECK(sim.run_until([&] { return sim.now() >= TimePoint(10s); }, TimePoint(1h)) ==
          RunEnd::done);
    CHECK(sim.now() == TimePoint(10s));
    lane.spawn("spin", spin());
    CHECK(sim.run_until_quiescent(TimePoint(1h)) == RunEnd::livelock);
}

TEST_CASE("exceptions in the simulation are collected", "[runtime][sim]") {
    Simulation sim({.seed = 3, .faults = false});
    SimLane& lane = sim.add_lane("io-0");
    const auto fail = []() -> asio::awaitable<void> {
        throw std::runtime_error("broken");
        co_return;
    };
    lane.spawn("fail", fail());
    asio::post(lane.context(), [] { throw std::runtime_error("posted"); });
    CHECK(sim.run_until_quiescent(TimePoint(1s)) == RunEnd::quiescent);
    CHECK(troupe::test::lines(sim.failures()) ==
          std::vector<std::string>{"io-0 fail: broken", "io-0 handler: posted"});
}

TEST_CASE("each seed switches on its own subset of faults", "[runtime][sim]") {
    const std::vector<std::string> names{"a", "b", "c", "d", "e"};
    std::set<std::set<std::string>> subsets;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        Simulation sim({.seed = seed});
        Simulation reversed({.seed = seed});
        std::set<std::string> on;
        for (const auto& name : names) {
            if (sim.fault_on(name)) on.insert(name);
        }
        for (auto name = names.rbegin(); name != names.rend(); ++name) {
            REQUIRE(reversed.fault_on(*name) == on.contains(*name));
        }
        subsets.insert(on);
    }
    CHECK(subsets.contains({}));
    CHECK(subsets.contains({"a", "b", "c", "d", "e"}));
    CHECK(subsets.size() > 20);
}

TEST_CASE("faults strike only where they are on and not after they were stopped",
          "[runtime][sim]") {
    int struck = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        Simulation sim({.seed = seed});
        const bool on = sim.fault_on("step_error");
        for (int i = 0; i < 100; ++i) {
            const bool strikes = sim.chance("step_error", 0.5);
            struck += strikes ? 1 : 0;
            REQUIRE((on || !strikes));
        }
        CHECK((sim.description().find("step_error") != std::string::npos) == on);
        sim.stop_faults();
        REQUIRE_FALSE(sim.chance("step_error", 1.0));
        Simulation calm({.seed = seed, .faults = false});
        REQUIRE_FALSE(calm.chance("step_error", 1.0));
    }
    CHECK(struck > 500);
}

TEST_CASE("a jumping clock makes timers late and never early", "[runtime][sim]") {
    int late = 0;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        Simulation sim({.seed = seed});
        SimLane& lane = sim.add_lane("io-0");
        bool early = false;
        const auto ticks = [&]() -> asio::awaitable<void> {
            for (int i = 0; i < 50; ++i) {
                const TimePoint deadline = lane.now() + 10ms;
                co_await sleep_until(lane, deadline);
                early = early || lane.now() < deadline;
                late += lane.now() > deadline ? 1 : 0;
            }
        };
        lane.spawn("ticks", ticks());
        REQUIRE(sim.run_until_quiescent(TimePoint(24h)) == RunEnd::quiescent);
        REQUIRE_FALSE(early);
    }
    CHECK(late > 0);
}
