// The engine on real threads: what the simulator cannot show, and what sanitizers look at.
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string_view>

#include "actors/engine.hpp"
#include "runtime/thread.hpp"
#include "tools/simulation/fake_backend.hpp"

namespace troupe::actors {
namespace {

using simulation::FakeBackend;
using namespace std::chrono_literals;

// Counts terminal events until all have come; then shuts the engine down.
struct Listener {
    Listener(runtime::Mailbox<HubMessage>& mailbox, std::size_t expected_count)
        : inbox(mailbox), expected(expected_count) {}

    boost::asio::awaitable<void> listen() {
        std::vector<HubMessage> batch;
        while (co_await inbox.receive_all(batch)) {
            for (HubMessage& message : batch)
                hear(std::get<Delivery>(message));
            if (ended.size() == expected) break;
        }
        all_ended.set_value();
    }

    void hear(const Delivery& delivery) {
        for (const SessionEvent& event : delivery.events) {
            if (const auto* run = std::get_if<TokenRun>(&event)) {
                for (std::uint32_t i = 0; i < run->count; ++i) {
                    tokens[run->request].push_back(delivery.tokens[run->begin + i].id);
                }
            } else if (const auto* finished = std::get_if<Finished>(&event)) {
                ended[finished->request] = finished->reason;
            }
        }
    }

    runtime::Mailbox<HubMessage>& inbox;
    const std::size_t expected;
    std::map<RequestId, std::vector<model::TokenId>> tokens;
    std::map<RequestId, FinishReason> ended;
    std::promise<void> all_ended;
};

Submit make_submit(RequestId id) {
    Submit submit;
    submit.request = id;
    submit.reply_to = {0, id};
    for (std::uint64_t i = 0; i < 10 + id % 50; ++i) {
        submit.prompt.push_back(static_cast<model::TokenId>(1 + (id * i) % 26));
    }
    submit.params.max_tokens = 20;
    submit.params.seed = id;
    submit.stop = runtime::StopFlag::make();
    return submit;
}

TEST_CASE("the engine serves, cancels and shuts down on real threads", "[actors][engine]") {
    constexpr RequestId kRequests = 300;
    const runtime::SteadyClock clock;
    const auto report = [](const runtime::LaneFailure& failure) { FAIL(failure.what); };
    runtime::NamedThread engine_lane("engine", clock, report);
    runtime::NamedThread executor_lane("executor", clock, report);
    runtime::NamedThread io_lane("io-0", clock, report);
    runtime::Mailbox<HubMessage> hub({.normal_max = 100'000, .control_max = 1});
    FakeBackend backend({});
    EngineSettings settings;
    settings.scheduler.end_tokens = {simulation::kEndToken};
    settings.scheduler.waiting_max = kRequests;
    settings.scheduler.waiting_per_principal_max = kRequests;
    Engine engine(settings, backend, engine_lane, executor_lane,
                  {runtime::Address<HubMessage>(hub)}, [](const std::string& m) { FAIL(m); });
    Listener listener(hub, kRequests);
    io_lane.spawn("listener", listener.listen());
    engine.start();
    for (runtime::NamedThread* lane : {&io_lane, &engine_lane, &executor_lane})
        lane->start();

    for (RequestId id = 1; id <= kRequests; ++id) {
        Submit submit = make_submit(id);
        const auto stop = submit.stop;
        REQUIRE(engine.scheduler().send(std::move(submit)));
        if (id % 3 != 0) continue;
        stop->request(runtime::StopReason::cancelled);
        engine.scheduler().send_control(Cancel{id});
    }
    listener.all_ended.get_future().wait();
    engine.shutdown(clock.now() + 5s);
    for (runtime::NamedThread* lane : {&io_lane, &engine_lane, &executor_lane})
        lane->finish();
    for (runtime::NamedThread* lane : {&io_lane, &engine_lane, &executor_lane})
        lane->join();

    for (RequestId id = 1; id <= kRequests; ++id) {
        const bool cancelled = listener.ended[id] == FinishReason::cancelled;
        REQUIRE((!cancelled || id % 3 == 0));
        if (cancelled) continue;
        const Submit submit = make_submit(id);
        auto expected = FakeBackend::oracle(submit.prompt, submit.params, 0, 20, 27);
        if (expected.back() == simulation::kEndToken) expected.pop_back();
        REQUIRE(listener.tokens[id] == expected);
    }
    std::map<std::string_view, std::size_t> noted;
    for (const runtime::TraceEvent& event : engine_lane.trace().events())
        ++noted[event.name];
    REQUIRE(noted["submit"] == kRequests);
    REQUIRE(noted["decode"] == kRequests);
    REQUIRE(noted["compute"] == engine.stats().steps_total.get());
    REQUIRE(noted["plan"] >= noted["compute"]);
    REQUIRE(engine.stats().steps_plan_ns_total.get() > 0);
    REQUIRE(engine.stats().steps_deliver_ns_total.get() > 0);
    REQUIRE(engine.stats().steps_sample_ns_total.get() > 0);
    REQUIRE(engine.stats().steps_sample_ns_total.get() <
            engine.stats().steps_compute_ns_total.get());
    REQUIRE(backend.breach() == "");
    REQUIRE(engine.stats().kv_pages_leased.get() == 0);
    REQUIRE_FALSE(engine.scheduler().send(make_submit(9999)));
}

}  // namespace
}  // namespace troupe::actors
