#include "gateway/connection_table.hpp"

#include <utility>

namespace troupe::gateway {

void ConnectionTable::add(const std::shared_ptr<Connection>& connection,
                          runtime::TimePoint look_at) {
    all_.emplace(connection.get(), connection);
    look(*connection, look_at);
}

void ConnectionTable::look(Connection& connection, runtime::TimePoint when) {
    const auto entry = all_.find(&connection);
    if (entry == all_.end() || when >= connection.look_at_) return;
    connection.look_at_ = when;
    looks_.push({when, entry->second});
}

void ConnectionTable::tick(runtime::TimePoint now, std::size_t most) {
    while (most > 0 && !looks_.empty() && looks_.top().when <= now) {
        Look due = looks_.top();
        looks_.pop();
        const auto connection = due.who.lock();
        if (!connection || connection->look_at_ != due.when) continue;
        --most;
        connection->look_at_ = runtime::TimePoint::max();
        const auto next = connection->tick(now);
        if (next >= connection->look_at_) continue;
        connection->look_at_ = due.when = next;
        looks_.push(std::move(due));
    }
}

}  // namespace troupe::gateway
