#include <catch2/catch.hpp>
#include <variant>

#include "runtime/ask.hpp"
#include "runtime/mailbox.hpp"
#include "runtime/sim.hpp"
#include "runtime/thread.hpp"
#include "tests/runtime/support.hpp"

namespace asio = boost::asio;
using namespace troupe::runtime;

namespace {

struct Double {
    int value = 0;
    Replier<int> reply;
};
using Message = std::variant<Double>;

asio::awaitable<void> answer_doubles(Mailbox<Message>& inbox) {
    std::vector<Message> batch;
    while (co_await inbox.receive_all(batch)) {
        for (Message& message : batch) {
            auto& request = std::get<Double>(message);
            request.reply.answer(2 * request.value);
        }
        batch.clear();
    }
}

asio::awaitable<void> ask_doubles(Mailbox<Message>& inbox, int count, std::vector<int>& answers) {
    for (int i = 0; i < count; ++i) {
        const auto answer = co_await ask<int>([&](Replier<int> reply) {
            inbox.send(Double{i, std::move(reply)});
        });
        answers.push_back(answer.value_or(-1));
    }
    inbox.close();
}

}  // namespace

TEST_CASE("an asker gets the answer to its own question", "[runtime][ask]") {
    const SteadyClock clock;
    troupe::test::FailureLog log;
    NamedThread lane("engine", clock, log.handler());
    Mailbox<Message> inbox({.normal_max = 1, .control_max = 0});
    std::vector<int> answers;
    lane.spawn("answer", answer_doubles(inbox));
    lane.spawn("ask", ask_doubles(inbox, 4, answers));
    lane.finish();
    lane.run();
    CHECK(answers == std::vector{0, 2, 4, 6});
    CHECK(log.failures().empty());
}

TEST_CASE("asking works between lanes too", "[runtime][ask][threads]") {
    const SteadyClock clock;
    troupe::test::FailureLog log;
    NamedThread answering("answering", clock, log.handler());
    NamedThread asking("asking", clock, log.handler());
    Mailbox<Message> inbox({.normal_max = 1, .control_max = 0});
    std::vector<int> answers;
    answering.spawn("answer", answer_doubles(inbox));
    asking.spawn("ask", ask_doubles(inbox, 1000, answers));
    for (NamedThread* lane : {&answering, &asking})
        lane->start();
    for (NamedThread* lane : {&answering, &asking})
        lane->finish();
    for (NamedThread* lane : {&answering, &asking})
        lane->join();
    REQUIRE(answers.size() == 1000);
    CHECK(answers.back() == 1998);
}

TEST_CASE("a question that is dropped wakes its asker with nothing", "[runtime][ask]") {
    Simulation sim({.seed = 1, .faults = false});
    SimLane& lane = sim.add_lane("engine");
    Mailbox<Message> inbox({.normal_max = 1, .control_max = 0});
    std::vector<int> answers;
    SECTION("because the mailbox is closed") {
        inbox.close();
    }
    SECTION("because it was taken and thrown away") {
        const auto discard = [&inbox]() -> asio::awaitable<void> {
            std::vector<Message> batch;
            (void)co_await inbox.receive_all(batch);
        };
        lane.spawn("discard", discard());
        lane.spawn("ask", ask_doubles(inbox, 1, answers));
        CHECK(sim.run_until_quiescent(TimePoint::max()) == RunEnd::quiescent);
        CHECK(answers == std::vector{-1});
        return;
    }
    lane.spawn("ask", ask_doubles(inbox, 1, answers));
    CHECK(sim.run_until_quiescent(TimePoint::max()) == RunEnd::quiescent);
    CHECK(answers == std::vector{-1});
}
