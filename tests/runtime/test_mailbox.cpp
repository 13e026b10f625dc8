#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <memory>
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

struct Number {
    int value = 0;
    friend bool operator==(const Number&, const Number&) = default;
};
struct Stop {
    friend bool operator==(const Stop&, const Stop&) = default;
};
using Message = std::variant<Number, Stop>;
using Batches = std::vector<std::vector<Message>>;

asio::awaitable<void> collect(Mailbox<Message>& mailbox, Batches& batches, bool& ended) {
    std::vector<Message> batch;
    while (co_await mailbox.receive_all(batch))
        batches.push_back(batch);
    ended = batch.empty();
}

// A receiver on an io_context that the test runs by hand.
struct Receiver {
    explicit Receiver(MailboxCapacity capacity) : mailbox(capacity) {
        asio::co_spawn(context, collect(mailbox, batches, ended), asio::detached);
    }
    void poll() {
        context.restart();
        context.poll();
    }

    asio::io_context context;
    Mailbox<Message> mailbox;
    Batches batches;
    bool ended = false;
};

}  // namespace

TEST_CASE("a receiver takes everything waiting in one go, in order", "[runtime][mailbox]") {
    Receiver receiver({.normal_max = 8, .control_max = 1});
    receiver.poll();
    CHECK(receiver.batches.empty());

    for (int i = 1; i <= 3; ++i)
        CHECK(receiver.mailbox.send(Number{i}));
    receiver.poll();
    CHECK(receiver.batches == Batches{{Number{1}, Number{2}, Number{3}}});

    receiver.mailbox.send(Number{4});
    receiver.poll();
    CHECK(receiver.batches.back() == std::vector<Message>{Number{4}});
    receiver.mailbox.close();
    receiver.poll();
}

TEST_CASE("control messages overtake normal ones", "[runtime][mailbox]") {
    Receiver receiver({.normal_max = 8, .control_max = 2});
    receiver.mailbox.send(Number{1});
    receiver.mailbox.send_control(Stop{});
    receiver.mailbox.send(Number{2});
    receiver.mailbox.send_control(Number{3});
    receiver.poll();
    CHECK(receiver.batches == Batches{{Stop{}, Number{3}, Number{1}, Number{2}}});
    receiver.mailbox.close();
    receiver.poll();
}

TEST_CASE("a receiver is woken once however many messages come", "[runtime][mailbox]") {
    Receiver receiver({.normal_max = 8, .control_max = 2});
    receiver.mailbox.send(Number{1});  // before the receiver has looked: nobody to wake
    CHECK(receiver.mailbox.wakes() == 0);
    receiver.poll();

    for (int i = 2; i <= 5; ++i)
        receiver.mailbox.send(Number{i});
    receiver.mailbox.send_control(Stop{});
    CHECK(receiver.mailbox.wakes() == 1);
    receiver.poll();
    CHECK(receiver.batches.size() == 2);

    receiver.mailbox.send(Number{6});
    CHECK(receiver.mailbox.wakes() == 2);
    receiver.mailbox.close();
    receiver.poll();
}

TEST_CASE("close ends the receiver after the rest and drops what comes later",
          "[runtime][mailbox]") {
    Receiver receiver({.normal_max = 8, .control_max = 2});
    receiver.mailbox.send(Number{1});
    receiver.mailbox.close();
    CHECK_FALSE(receiver.mailbox.send(Number{2}));
    CHECK_FALSE(receiver.mailbox.send_control(Stop{}));
    receiver.poll();
    CHECK(receiver.batches == Batches{{Number{1}}});
    CHECK(receiver.ended);
}

TEST_CASE("close wakes a sleeping receiver", "[runtime][mailbox]") {
    Receiver receiver({.normal_max = 8, .control_max = 2});
    receiver.poll();
    receiver.mailbox.close();
    CHECK_FALSE(receiver.ended);
    receiver.poll();
    CHECK(receiver.ended);
    CHECK(receiver.batches.empty());
}

TEST_CASE("drain takes what is there without waiting", "[runtime][mailbox]") {
    Mailbox<Message> mailbox({.normal_max = 2, .control_max = 1});
    std::vector<Message> batch{Number{9}};
    CHECK(mailbox.drain(batch) == 0);
    CHECK(batch.empty());
    mailbox.send(Number{1});
    mailbox.send_control(Stop{});
    CHECK(mailbox.drain(batch) == 2);
    CHECK(batch == std::vector<Message>{Stop{}, Number{1}});
}

TEST_CASE("room that was taken can be filled again", "[runtime][mailbox]") {
    Mailbox<Message> mailbox({.normal_max = 2, .control_max = 1});
    std::vector<Message> batch;
    for (int round = 0; round < 5; ++round) {
        mailbox.send(Number{round});
        mailbox.send(Number{round});
        mailbox.send_control(Stop{});
        REQUIRE(mailbox.drain(batch) == 3);
    }
}

TEST_CASE("a full lane is a bug, and each lane has its own room", "[runtime][mailbox]") {
    const auto fill = [](int normal, int control) {
        return troupe::test::assertion_of([=] {
            Mailbox<Message> mailbox({.normal_max = 2, .control_max = 1});
            for (int i = 0; i < normal; ++i)
                mailbox.send(Number{i});
            for (int i = 0; i < control; ++i)
                mailbox.send_control(Stop{});
        });
    };
    CHECK(fill(2, 1).empty());
    CHECK_THAT(fill(3, 0), Catch::Contains("mailbox full"));
    CHECK_THAT(fill(0, 2), Catch::Contains("mailbox full"));
}

TEST_CASE("messages that can only be moved pass through", "[runtime][mailbox]") {
    Mailbox<std::variant<std::unique_ptr<int>>> mailbox({.normal_max = 2, .control_max = 2});
    mailbox.send(std::make_unique<int>(7));
    mailbox.send_control(std::make_unique<int>(8));
    std::vector<std::variant<std::unique_ptr<int>>> batch;
    REQUIRE(mailbox.drain(batch) == 2);
    CHECK(*std::get<0>(batch[0]) == 8);
    CHECK(*std::get<0>(batch[1]) == 7);
}

TEST_CASE("addresses of one mailbox are equal and lead there", "[runtime][mailbox]") {
    Mailbox<Message> mailbox({.normal_max = 2, .control_max = 1});
    Mailbox<Message> other({.normal_max = 2, .control_max = 1});
    const Address<Message> address(mailbox);
    CHECK(address == Address(mailbox));
    CHECK_FALSE(address == Address(other));
    CHECK(address.send(Number{1}));
    CHECK(address.send_control(Stop{}));
    std::vector<Message> batch;
    CHECK(mailbox.drain(batch) == 2);
}

TEST_CASE("receiving with a deadline ends at a message, the deadline or the close",
          "[runtime][mailbox][sim]") {
    Simulation sim({.seed = 1, .faults = false});
    SimLane& lane = sim.add_lane("engine");
    Mailbox<Message> mailbox({.normal_max = 2, .control_max = 1});
    std::vector<std::string> story;
    const auto receive = [&]() -> asio::awaitable<void> {
        std::vector<Message> batch;
        for (bool open = true; open;) {
            open = co_await mailbox.receive_all_until(lane, lane.now() + 10ms, batch);
            const auto now_ms = lane.now().time_since_epoch() / 1ms;
            story.push_back(std::to_string(now_ms) + (open ? " got " : " end ") +
                            std::to_string(batch.size()));
        }
    };
    lane.spawn("receive", receive());
    sim.run_until_quiescent(TimePoint(12ms));
    mailbox.send(Number{1});
    sim.run_until_quiescent(TimePoint(15ms));
    mailbox.close();
    CHECK(sim.run_until_quiescent(TimePoint(1s)) == RunEnd::quiescent);
    CHECK(story == std::vector<std::string>{"10 got 0", "12 got 1", "15 end 0"});
}

TEST_CASE("under real threads nothing is lost, doubled or reordered",
          "[runtime][mailbox][threads]") {
    constexpr int senders = 3;
    constexpr int messages_per_sender = 20'000;
    struct Tagged {
        int sender = 0;
        int number = 0;
    };
    using TaggedMessage = std::variant<Tagged>;
    Mailbox<TaggedMessage> mailbox(
        {.normal_max = senders * messages_per_sender, .control_max = senders});
    const SteadyClock clock;
    troupe::test::FailureLog log;
    std::array<int, senders> next{};
    int controls = 0;
    bool in_order = true;
    const auto receive = [&]() -> asio::awaitable<void> {
        std::vector<TaggedMessage> batch;
        while (co_await mailbox.receive_all(batch)) {
            for (const TaggedMessage& message : batch) {
                const Tagged& tagged = std::get<Tagged>(message);
                if (tagged.number < 0) {
                    ++controls;
                } else {
                    in_order = in_order && tagged.number == next[tagged.sender]++;
                }
            }
        }
    };

    NamedThread lane("receiver", clock, log.handler());
    lane.spawn("receive", receive());
    lane.start();
    std::vector<std::thread> threads;
    for (int sender = 0; sender < senders; ++sender) {
        threads.emplace_back([&mailbox, sender] {
            for (int i = 0; i < messages_per_sender; ++i) {
                mailbox.send(Tagged{sender, i});
                if (i % 64 == 0) std::this_thread::yield();
            }
            mailbox.send_control(Tagged{sender, -1});
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    mailbox.close();
    lane.finish();
    lane.join();

    CHECK(in_order);
    for (const int count : next)
        CHECK(count == messages_per_sender);
    CHECK(controls == senders);
    CHECK(log.failures().empty());
}
