// The open connections of an io thread, and when each wants to be looked at: one that is at work
// every second, an idle WebSocket when its time is over. Thousands that say nothing cost the others
// nothing. Lives on that io thread, touched by it alone.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "runtime/clock.hpp"

namespace troupe::gateway {

// One open socket, as the table knows it.
class Connection {
 public:
    Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    virtual ~Connection() = default;

    // Bytes of answers that wait for the client to read.
    [[nodiscard]] virtual std::size_t unread_bytes() const = 0;
    // Timeouts. Gives when to look again.
    virtual runtime::TimePoint tick(runtime::TimePoint now) = 0;
    // The keys have changed: a socket whose own is gone closes.
    virtual void keys_changed() = 0;
    // The server goes down: finish what runs, then close.
    virtual void drain() = 0;
    // Now.
    virtual void abort() = 0;

 private:
    friend class ConnectionTable;
    runtime::TimePoint look_at_ = runtime::TimePoint::max();
};

class ConnectionTable {
 public:
    void add(const std::shared_ptr<Connection>& connection, runtime::TimePoint look_at);
    void remove(Connection& connection) { all_.erase(&connection); }

    [[nodiscard]] std::size_t size() const { return all_.size(); }
    [[nodiscard]] bool empty() const { return all_.empty(); }

    // Its next tick() comes at `when`, unless it comes sooner anyway.
    void look(Connection& connection, runtime::TimePoint when);
    // No tick() is due before.
    [[nodiscard]] runtime::TimePoint earliest() const {
        return looks_.empty() ? runtime::TimePoint::max() : looks_.top().when;
    }
    // Looks at those whose time has come, `most` at once; the rest waits for the next call. Those
    // that are gone do not count, or many short connections would be forgotten too slowly.
    void tick(runtime::TimePoint now, std::size_t most);

    // Connections may go while they are visited, so each is held for its turn.
    template <class Visit>
    void for_each(Visit visit) const {
        std::vector<std::weak_ptr<Connection>> visited;
        visited.reserve(all_.size());
        for (const auto& entry : all_)
            visited.push_back(entry.second);
        for (const auto& weak : visited)
            if (const auto connection = weak.lock()) visit(*connection);
    }

 private:
    struct Look {
        runtime::TimePoint when;
        std::weak_ptr<Connection> who;
        bool operator>(const Look& other) const { return when > other.when; }
    };

    std::unordered_map<Connection*, std::weak_ptr<Connection>> all_;
    // One of an other time than the connection's own has been overtaken by a sooner one.
    std::priority_queue<Look, std::vector<Look>, std::greater<>> looks_;
};

}  // namespace troupe::gateway
