// When the table looks at whom.
#include <catch2/catch.hpp>
#include <memory>
#include <vector>

#include "gateway/connection_table.hpp"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using gateway::Connection;
using gateway::ConnectionTable;
using runtime::TimePoint;

constexpr TimePoint kStart{100s};

// Wants to be looked at every `interval`.
class Looked final : public Connection {
 public:
    Looked(ConnectionTable& table, std::chrono::seconds every) : interval(every), table_(table) {}
    ~Looked() override { table_.remove(*this); }
    [[nodiscard]] std::size_t unread_bytes() const override { return 0; }
    TimePoint tick(TimePoint now) override {
        times.push_back(now - kStart);
        return now + interval;
    }
    void keys_changed() override {}
    void drain() override {}
    void abort() override {}

    std::chrono::seconds interval;
    std::vector<runtime::Duration> times;

 private:
    ConnectionTable& table_;
};

std::shared_ptr<Looked> add_to(ConnectionTable& table, std::chrono::seconds interval) {
    auto connection = std::make_shared<Looked>(table, interval);
    table.add(connection, kStart + interval);
    return connection;
}

void pass(ConnectionTable& table, std::chrono::seconds from, std::chrono::seconds to) {
    for (auto at = from; at <= to; at += 1s)
        table.tick(kStart + at, 100);
}

using Times = std::vector<runtime::Duration>;

TEST_CASE("Each connection is looked at when it wants to be") {
    ConnectionTable table;
    const auto busy = add_to(table, 1s), idle = add_to(table, 4s);
    pass(table, 0s, 9s);
    CHECK(busy->times == Times{1s, 2s, 3s, 4s, 5s, 6s, 7s, 8s, 9s});
    CHECK(idle->times == Times{4s, 8s});
}

TEST_CASE("A connection that gets to work is looked at sooner, and once") {
    ConnectionTable table;
    const auto connection = add_to(table, 600s);
    pass(table, 0s, 2s);
    connection->interval = 2s;
    table.look(*connection, kStart + 3s);
    table.look(*connection, kStart + 5s);  // later than it comes anyway
    pass(table, 3s, 6s);
    CHECK(connection->times == Times{3s, 5s});
    connection->interval = 600s;
    pass(table, 7s, 599s);
    CHECK(connection->times == Times{3s, 5s, 7s});
    pass(table, 600s, 607s);  // the first of its looks was overtaken
    CHECK(connection->times == Times{3s, 5s, 7s, 607s});
}

TEST_CASE("Some at once, the others with the next call") {
    ConnectionTable table;
    std::vector<std::shared_ptr<Looked>> all;
    for (int i = 0; i < 5; ++i)
        all.push_back(add_to(table, 1s));
    const auto looks = [&] {
        std::size_t count = 0;
        for (const auto& connection : all)
            count += connection->times.size();
        return count;
    };
    table.tick(kStart + 1s, 2);
    CHECK(looks() == 2);
    table.tick(kStart + 1s, 2);
    CHECK(looks() == 4);
    table.tick(kStart + 1s, 2);
    CHECK(looks() == 5);
}

TEST_CASE("However many are gone, who is there has their turn") {
    ConnectionTable table;
    for (int i = 0; i < 100; ++i)
        add_to(table, 1s);
    const auto stays = add_to(table, 2s);
    table.tick(kStart + 2s, 1);
    CHECK(stays->times == Times{2s});
}

TEST_CASE("Who is gone is not looked at, and may go within a look") {
    ConnectionTable table;
    auto gone = add_to(table, 1s);
    const auto stays = add_to(table, 1s);
    gone.reset();
    CHECK(table.size() == 1);
    pass(table, 1s, 1s);
    CHECK(stays->times == Times{1s});
    std::size_t visited = 0;
    auto second = add_to(table, 1s), third = add_to(table, 1s);
    table.for_each([&](Connection&) {
        second.reset();
        third.reset();
        ++visited;
    });
    CHECK(visited >= 1);
    CHECK(visited <= 2);
    CHECK(table.size() == 1);
}

}  // namespace
}  // namespace troupe
