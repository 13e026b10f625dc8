#include <pthread.h>

#include <array>
#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>
#include <stdexcept>

#include "runtime/mailbox.hpp"
#include "runtime/thread.hpp"
#include "tests/runtime/support.hpp"

namespace asio = boost::asio;
using namespace troupe::runtime;
using namespace std::chrono_literals;

namespace {

asio::awaitable<void> fail(std::string what) {
    throw std::runtime_error(what);
    co_return;
}

asio::awaitable<void> fail_strangely() {
    throw 7;
    co_return;
}

asio::awaitable<void> sleep_for_ever(Lane& lane, std::shared_ptr<int> token) {
    co_await sleep_until(lane, TimePoint::max());
    *token = 1;
}

}  // namespace

TEST_CASE("a thread carries its name and runs what is spawned on it", "[runtime][thread]") {
    const SteadyClock clock;
    troupe::test::FailureLog log;
    NamedThread lane("engine-test-15b", clock, log.handler());
    std::array<char, 16> name{};
    bool in_this_thread = false;
    const auto look = [&]() -> asio::awaitable<void> {
        co_await sleep_for(lane, 1ms);  // the starter names the thread after its start
        while (pthread_getname_np(pthread_self(), name.data(), name.size()) == 0 &&
               lane.name() != name.data()) {
            co_await lane.yield();
        }
        in_this_thread = lane.in_this_thread();
        lane.note("looked", 1, 2);
    };
    CHECK_FALSE(lane.in_this_thread());
    lane.spawn("look", look());
    lane.start();
    lane.finish();
    lane.join();
    CHECK(std::string(name.data()) == "engine-test-15b");
    CHECK(in_this_thread);
    REQUIRE(lane.trace().count() == 1);
    CHECK(lane.trace().events()[0].lane == "engine-test-15b");
    CHECK(lane.trace().events()[0].name == "looked");
}

TEST_CASE("exceptions are reported and the thread goes on", "[runtime][thread]") {
    const SteadyClock clock;
    troupe::test::FailureLog log;
    NamedThread lane("io-0", clock, log.handler());
    bool reached = false;
    lane.spawn("first", fail("out of luck"));
    lane.spawn("second", fail_strangely());
    asio::post(lane.context(), [] { throw std::runtime_error("posted"); });
    asio::post(lane.context(), [&reached] { reached = true; });
    lane.finish();
    lane.run();
    CHECK(reached);
    CHECK(troupe::test::lines(log.failures()) ==
          std::vector<std::string>{"io-0 first: out of luck", "io-0 handler: posted",
                                   "io-0 second: an exception of unknown type"});
}

TEST_CASE("a finished lane waits for its coroutines", "[runtime][thread]") {
    const SteadyClock clock;
    troupe::test::FailureLog log;
    Mailbox<int> inbox({.normal_max = 4, .control_max = 0});
    NamedThread lane("engine", clock, log.handler());
    int sum = 0;
    const auto add = [&]() -> asio::awaitable<void> {
        std::vector<int> batch;
        while (co_await inbox.receive_all(batch)) {
            for (const int value : batch)
                sum += value;
        }
    };
    lane.spawn("add", add());
    lane.start();
    lane.finish();
    for (const int value : {1, 2, 3})
        inbox.send(value);
    inbox.close();
    lane.join();
    CHECK(sum == 6);
}

TEST_CASE("a stopped lane unwinds coroutines that still wait", "[runtime][thread]") {
    const SteadyClock clock;
    troupe::test::FailureLog log;
    const auto token = std::make_shared<int>(0);
    {
        NamedThread lane("io-0", clock, log.handler());
        lane.spawn("sleep", sleep_for_ever(lane, token));
        lane.start();
        lane.stop();
    }
    CHECK(token.use_count() == 1);
    CHECK(*token == 0);
    {
        NamedThread lane("io-0", clock, log.handler());
        lane.spawn("sleep", sleep_for_ever(lane, token));
        lane.context().poll();
        CHECK(token.use_count() == 2);
    }
    CHECK(token.use_count() == 1);
    CHECK(log.failures().empty());
}
