#include <catch2/catch.hpp>
#include <variant>

#include "actors/outbox.hpp"
#include "actors/spare_deliveries.hpp"

namespace troupe::actors {
namespace {

TEST_CASE("each hub has its own delivery", "[actors][outbox]") {
    Outbox outbox(2);
    outbox.add({1, 7}, Queued{7, 70, 3});
    REQUIRE(outbox.deliveries()[0].events.empty());
    REQUIRE(outbox.deliveries()[1].events.size() == 1);
    outbox.clear();
    REQUIRE(outbox.deliveries()[1].events.empty());
}

TEST_CASE("a delivery that was given back is filled again, whoever is gone", "[actors][outbox]") {
    Delivery read;
    {
        Outbox outbox(1);
        outbox.add({0, 7}, Queued{7, 70, 3});
        read = outbox.take(0);
        REQUIRE(read.events.size() == 1);
        const SessionEvent* const memory = read.events.data();
        give_back(read);
        REQUIRE(read.home == nullptr);
        outbox.add({0, 7}, Queued{7, 71, 2});
        read = outbox.take(0);  // beside which the spare one begins
        outbox.add({0, 7}, Queued{7, 72, 1});
        REQUIRE(outbox.deliveries()[0].events.size() == 1);
        REQUIRE(outbox.deliveries()[0].events.data() == memory);
        REQUIRE(std::get<Queued>(outbox.deliveries()[0].events[0]).request == 72);
    }
    give_back(read);
}

TEST_CASE("tokens that follow each other are one run", "[actors][outbox]") {
    Outbox outbox(1);
    outbox.add_token({0, 7}, 70, 4, {.id = 11}, {});
    outbox.add_token({0, 7}, 70, 5, {.id = 12}, {});
    outbox.add_token({0, 8}, 80, 0, {.id = 13}, {});
    outbox.add_token({0, 7}, 70, 6, {.id = 14}, {});
    const Delivery& delivery = outbox.deliveries()[0];
    REQUIRE(delivery.events.size() == 3);
    const auto& run = std::get<TokenRun>(delivery.events[0]);
    REQUIRE(run.first_index == 4);
    REQUIRE(run.begin == 0);
    REQUIRE(run.count == 2);
    REQUIRE(std::get<TokenRun>(delivery.events[2]).begin == 3);
    REQUIRE(delivery.tokens[3].id == 14);
}

TEST_CASE("alternatives travel with their token", "[actors][outbox]") {
    Outbox outbox(1);
    const std::vector<model::TokenLogprob> top{{1, -1.f}, {2, -2.f}, {3, -3.f}, {4, -4.f}};
    outbox.add_token({0, 7}, 70, 0, {.id = 1, .top_begin = 2, .top_count = 2}, top);
    outbox.add_token({0, 7}, 70, 1, {.id = 2}, top);
    outbox.add_token({0, 7}, 70, 2, {.id = 3, .top_begin = 0, .top_count = 1}, top);
    const Delivery& delivery = outbox.deliveries()[0];
    REQUIRE(delivery.tokens[0].top_begin == 0);
    REQUIRE(delivery.top[0].id == 3);
    REQUIRE(delivery.top[1].id == 4);
    REQUIRE(delivery.tokens[1].top_count == 0);
    REQUIRE(delivery.top[delivery.tokens[2].top_begin].id == 1);
}

}  // namespace
}  // namespace troupe::actors
