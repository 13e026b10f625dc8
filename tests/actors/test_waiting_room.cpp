#include <catch2/catch.hpp>
#include <deque>

#include "actors/limits.hpp"
#include "actors/waiting_room.hpp"

namespace troupe::actors {
namespace {

// Requests by number, in order of arrival.
struct Room {
    Request& add(std::uint64_t principal, double weight = 1.0, std::size_t tokens = 10) {
        Request& r = requests.emplace_back();
        r.arrival = requests.size();
        r.tokens.resize(tokens);
        r.submit.request = requests.size();
        r.submit.principal = {principal, weight};
        room.enter(r);
        room.enqueue(r);
        return r;
    }
    std::vector<RequestId> next(std::size_t count) {
        std::vector<Request*> chosen;
        room.next(
            count, [this](const Request& r) { return r.submit.request == blocked; }, chosen);
        std::vector<RequestId> ids;
        for (const Request* r : chosen)
            ids.push_back(r->submit.request);
        return ids;
    }
    // Takes the next one, and charges what it costs.
    RequestId serve() {
        std::vector<Request*> chosen;
        room.next(
            1, [](const Request&) { return false; }, chosen);
        room.dequeue(*chosen.at(0));
        room.charge(*chosen[0], chosen[0]->length());
        return chosen[0]->submit.request;
    }

    std::deque<Request> requests;
    WaitingRoom room;
    RequestId blocked = 0;
};

using Ids = std::vector<RequestId>;

TEST_CASE("one principal's requests go in order of arrival", "[actors][fairness]") {
    Room r;
    for (int i = 0; i < 4; ++i)
        r.add(1);
    REQUIRE(r.next(3) == Ids{1, 2, 3});
}

TEST_CASE("a greedy principal does not delay another's only request", "[actors][fairness]") {
    Room r;
    for (int i = 0; i < 20; ++i)
        r.add(1);
    r.add(2);
    REQUIRE(r.next(3) == Ids{1, 21, 2});
}

TEST_CASE("served tokens are shared by weight", "[actors][fairness]") {
    Room r;
    for (int i = 0; i < 30; ++i)
        r.add(1, 1.0);
    for (int i = 0; i < 30; ++i)
        r.add(2, 2.0);
    int of_first = 0;
    for (int i = 0; i < 30; ++i)
        of_first += r.serve() <= 30;
    REQUIRE(of_first == 10);
}

TEST_CASE("long requests count for more than short ones", "[actors][fairness]") {
    Room r;
    for (int i = 0; i < 10; ++i)
        r.add(1, 1.0, 90);
    for (int i = 0; i < 40; ++i)
        r.add(2, 1.0, 10);
    int of_first = 0;
    for (int i = 0; i < 20; ++i)
        of_first += r.serve() <= 10;
    REQUIRE(of_first == 2);
}

TEST_CASE("a newcomer starts level with the least served, not with a credit",
          "[actors][fairness]") {
    Room r;
    for (int i = 0; i < 40; ++i)
        r.add(1);
    for (int i = 0; i < 20; ++i)
        r.serve();
    for (int i = 0; i < 20; ++i)
        r.add(2);
    int of_newcomer = 0;
    for (int i = 0; i < 10; ++i)
        of_newcomer += r.serve() > 40;
    REQUIRE(of_newcomer == 5);
}

TEST_CASE("leaving and coming back does not wipe out what was served", "[actors][fairness]") {
    Room r;
    Request& first = r.add(1, 1.0, 1000);
    r.add(2, 1.0, 10);
    r.serve();
    r.room.leave(first);
    r.add(1);
    REQUIRE(r.next(2) == Ids{2, 3});
}

TEST_CASE("who cannot go yet is passed over", "[actors][fairness]") {
    Room r;
    for (int i = 0; i < 3; ++i)
        r.add(1);
    r.blocked = 1;
    REQUIRE(r.next(2) == Ids{2, 3});
}

TEST_CASE("preempted requests stand in front, the oldest first", "[actors][fairness]") {
    Room r;
    Request& old = r.add(1);
    Request& young = r.add(2);
    r.add(3);
    r.room.dequeue(old);
    r.room.dequeue(young);
    r.room.enqueue_preempted(young);
    r.room.enqueue_preempted(old);
    REQUIRE(r.next(3) == Ids{1, 2, 3});
    std::vector<Request*> order;
    r.room.in_order(order);
    REQUIRE(order.size() == 3);
    REQUIRE(order[0] == &old);
    r.room.dequeue(old);
    REQUIRE(r.room.count() == 2);
}

TEST_CASE("anybody can leave the middle of a queue", "[actors][fairness]") {
    Room r;
    for (int i = 0; i < 4; ++i)
        r.add(1);
    r.room.dequeue(r.requests[1]);
    r.room.dequeue(r.requests[3]);
    REQUIRE(r.next(4) == Ids{1, 3});
    r.room.dequeue(r.requests[0]);
    r.add(1);
    REQUIRE(r.next(4) == Ids{3, 5});
    REQUIRE(r.room.count() == 2);
}

TEST_CASE("places in the queue go round between principals", "[actors][fairness]") {
    Room r;
    for (int i = 0; i < 3; ++i)
        r.add(1);
    r.add(2);
    std::vector<Request*> order;
    r.room.in_order(order);
    Ids ids;
    for (const Request* request : order)
        ids.push_back(request->submit.request);
    REQUIRE(ids == Ids{1, 4, 2, 3});
}

TEST_CASE("principals without requests are forgotten when there are too many",
          "[actors][fairness]") {
    Room r;
    Request& stays = r.add(1);
    for (std::uint64_t p = 2; p < 10'000; ++p) {
        Request& r2 = r.add(p);
        r.room.dequeue(r2);
        r.room.leave(r2);
    }
    REQUIRE(r.room.principals_known() <= limits::kPrincipalsRemembered);
    REQUIRE(r.next(2) == Ids{stays.submit.request});
}

}  // namespace
}  // namespace troupe::actors
