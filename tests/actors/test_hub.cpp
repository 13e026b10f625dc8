// Routing between the scheduler and sessions, and what is kept of ended responses.
#include "actors/hub.hpp"

#include <catch2/catch.hpp>

#include "tests/actors/test_session_support.hpp"

using namespace troupe;
using namespace troupe::actors;

namespace {

struct Recorder final : SessionHandler {
    void on_event(const SessionEvent& event, const Delivery&) override {
        log += "event" + std::to_string(event.index()) + " ";
        if (on_any) on_any();
    }
    void on_delivered() override { log += "delivered "; }
    void on_shutdown() override { log += "shutdown "; }
    std::string log;
    std::function<void()> on_any;
};

struct Fixture {
    runtime::Mailbox<SchedulerMessage> inbox{{.normal_max = 8, .control_max = 8}};
    std::vector<std::function<void()>> later;
    SessionHub hub{{.index = 3,
                    .recent_responses_max = 10,
                    .recent_bytes_max = 100000,
                    .requests_live_max = 2,
                    .random =
                        [] {
                            return RandomBits{1, 0xABC};
                        }},
                   runtime::Address<SchedulerMessage>(inbox),
                   [this](std::function<void()> work, std::function<void()> done) {
                       work();
                       later.push_back(std::move(done));
                   }};
};

}  // namespace

TEST_CASE("Deliveries go to their sessions; what is for a gone one is counted", "[actors][hub]") {
    Fixture f;
    Recorder one;
    Recorder two;
    const SessionId first = f.hub.join(one);
    const SessionId second = f.hub.join(two);
    Delivery delivery;
    delivery.events = {Queued{first, 1, 0}, Queued{second, 2, 0}, PromptProgress{first, 1, 0, 0, 0},
                       Queued{99, 3, 0}};
    f.hub.on(delivery);
    CHECK(one.log == "event0 event1 delivered ");
    CHECK(two.log == "event0 delivered ");
    CHECK(f.hub.events_dropped() == 1);
    f.hub.leave(second);
    f.hub.on(delivery);
    CHECK(two.log == "event0 delivered ");
    CHECK(f.hub.events_dropped() == 3);
    f.hub.leave(first);
}

TEST_CASE("A session may leave the hub inside its own event", "[actors][hub]") {
    Fixture f;
    Recorder one;
    const SessionId first = f.hub.join(one);
    one.on_any = [&] { f.hub.leave(first); };
    Delivery delivery;
    delivery.events = {Queued{first, 1, 0}, Queued{first, 1, 0}};
    f.hub.on(delivery);
    CHECK(one.log == "event0 ");
}

TEST_CASE("Request ids carry the hub and never repeat", "[actors][hub]") {
    Fixture f;
    const RequestId first = f.hub.next_request();
    CHECK(first >> 48U == 3);
    CHECK(f.hub.next_request() == first + 1);
    CHECK(f.hub.random_hex() == "00000000000000010000000000000abc");
    const RandomBits a = system_random();
    const RandomBits b = system_random();
    CHECK((a.high != b.high || a.low != b.low));
}

TEST_CASE("Live requests are bounded until their terminal events are here", "[actors][hub]") {
    Fixture f;
    for (const RequestId id : {7, 8}) {
        REQUIRE_FALSE(f.hub.refuse({}, 1));
        Submit submit;
        submit.request = id;
        submit.principal.id = 10 + id;
        f.hub.submit(std::move(submit));
    }
    REQUIRE(f.hub.principal_of(8) != nullptr);
    CHECK(f.hub.principal_of(8)->id == 18);
    CHECK(f.hub.refuse({}, 1)->code == "rate_limit_exceeded");
    Finished finished;
    finished.session = 1;
    finished.request = 7;
    Delivery delivery;
    delivery.events = {Queued{1, 7}, std::move(finished)};
    f.hub.on(delivery);  // nobody is there to hear it, and still it counts
    CHECK_FALSE(f.hub.refuse({}, 1));
    CHECK(f.hub.requests_live() == 1);
    CHECK(f.hub.principal_of(7) == nullptr);
}

TEST_CASE("A key's tokens are charged when its requests end", "[actors][hub]") {
    Fixture f;
    const Principal limited{.id = 5, .weight = 1, .tokens_per_minute = 10};
    CHECK_FALSE(f.hub.refuse(limited, 1));
    Submit submit;
    submit.request = 9;
    submit.principal = limited;
    f.hub.submit(std::move(submit));
    CHECK(f.hub.rates(limited).tokens.remaining == 10);
    Finished finished;
    finished.request = 9;
    finished.usage = {.prompt_tokens = 6, .cached_tokens = 0, .generated_tokens = 5};
    Delivery delivery;
    delivery.events = {finished};
    f.hub.on(delivery);
    CHECK(f.hub.rates(limited).tokens.remaining == 0);
    const auto refused = f.hub.refuse(limited, 1);
    REQUIRE(refused);
    CHECK(refused->status == 429);
    CHECK(refused->retry_after_ms > 0);
    CHECK_FALSE(f.hub.refuse({.id = 6, .weight = 1}, 1));
}

TEST_CASE("What a helper has done is dropped when its session has left", "[actors][hub]") {
    Fixture f;
    Recorder one;
    const SessionId first = f.hub.join(one);
    int worked = 0;
    int done = 0;
    for (int i = 0; i < 2; ++i)
        f.hub.offload(
            first, [&] { ++worked; }, [&] { ++done; });
    f.later[0]();
    f.hub.leave(first);
    f.later[1]();
    CHECK(worked == 2);
    CHECK(done == 1);
}

TEST_CASE("Helpers get so many jobs at once; those of a gone session are never begun",
          "[actors][hub]") {
    Fixture f;
    Recorder one;
    Recorder two;
    const SessionId first = f.hub.join(one);
    const SessionId second = f.hub.join(two);
    std::size_t worked = 0;
    for (std::size_t i = 0; i < kOffloadJobsMax; ++i)
        f.hub.offload(
            first, [&] { ++worked; }, [] {});
    f.hub.offload(
        second, [&] { worked += 1000; }, [] {});
    f.hub.offload(
        first, [&] { worked += 100; }, [] {});
    CHECK(worked == kOffloadJobsMax);
    f.hub.leave(second);
    for (std::size_t i = 0; i < f.later.size(); ++i) {
        const auto done = f.later[i];
        done();
    }
    CHECK(worked == kOffloadJobsMax + 100);
    f.hub.leave(first);
}

TEST_CASE("Shutdown reaches every session, and later ones can ask", "[actors][hub]") {
    Fixture f;
    Recorder one;
    const SessionId first = f.hub.join(one);
    CHECK_FALSE(f.hub.draining());
    f.hub.on(HubShutdown{});
    CHECK(f.hub.draining());
    CHECK(one.log == "shutdown ");
    f.hub.leave(first);
}

TEST_CASE("The store forgets the oldest, by number and by bytes", "[actors][hub][store]") {
    ResponseStore store(3, 12000);
    const auto put = [&](const std::string& id, std::size_t bytes) {
        StoredResponse stored;
        stored.principal = 1;
        stored.id = id;
        stored.json.assign(bytes, 'x');
        store.put(std::move(stored));
    };
    for (const char* id : {"a", "b", "c", "d"})
        put(id, 10);
    CHECK(store.size() == 3);
    CHECK(store.find("a", 1) == nullptr);
    CHECK(store.find("b", 1) != nullptr);
    CHECK(store.find("b", 2) == nullptr);
    CHECK_FALSE(store.erase("b", 2));
    put("e", 9000);
    CHECK(store.find("e", 1) != nullptr);
    CHECK(store.bytes() <= 12000);
    put("f", 20000);
    CHECK(store.find("f", 1) == nullptr);
    CHECK(store.erase("e", 1));
    CHECK(store.find("e", 1) == nullptr);
}

TEST_CASE("A conversation is all turns, oldest first", "[actors][hub][store]") {
    const auto first =
        std::make_shared<const Turn>(Turn{.id = "resp_1",
                                          .before = nullptr,
                                          .input = {{.role = "user", .content = "1"}},
                                          .answer = "A",
                                          .answered = true});
    const Turn second{.id = "resp_2",
                      .before = first,
                      .input = {{.role = "user", .content = "2"}},
                      .answer = {},
                      .answered = false};
    std::string text;
    for (const auto& message : conversation("be kind", &second, {{.role = "user", .content = "3"}}))
        text += message.role.substr(0, 1) + message.content + " ";
    CHECK(text == "sbe kind u1 aA u2 u3 ");
}
