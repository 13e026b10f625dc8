#include "runtime/timer.hpp"

#include <utility>

#include "runtime/base/assert.hpp"
#include "runtime/lane.hpp"

namespace troupe::runtime {

TimerQueue::TimerQueue(EarliestChanged on_earliest_changed)
    : on_earliest_changed_(std::move(on_earliest_changed)) {}

TimerQueue::Key TimerQueue::add(TimePoint deadline, Continuation<bool> waiter) {
    const auto before = next_deadline();
    const Key key{deadline, next_sequence_++};
    waiting_.emplace(key, std::move(waiter));
    tell_if_changed(before);
    return key;
}

Continuation<bool> TimerQueue::remove(const Key& key) {
    const auto before = next_deadline();
    auto node = waiting_.extract(key);
    if (node.empty()) return {};
    tell_if_changed(before);
    return std::move(node.mapped());
}

std::size_t TimerQueue::fire_due(TimePoint now) {
    std::size_t fired = 0;
    while (!waiting_.empty() && waiting_.begin()->first.deadline <= now) {
        auto node = waiting_.extract(waiting_.begin());
        node.mapped().resume(true);
        ++fired;
    }
    if (on_earliest_changed_) on_earliest_changed_(next_deadline());
    return fired;
}

std::optional<TimePoint> TimerQueue::next_deadline() const {
    if (waiting_.empty()) return std::nullopt;
    return waiting_.begin()->first.deadline;
}

void TimerQueue::abandon() {
    on_earliest_changed_ = {};
    std::exchange(waiting_, {}).clear();
}

void TimerQueue::tell_if_changed(std::optional<TimePoint> before) {
    const auto after = next_deadline();
    if (after != before && on_earliest_changed_) on_earliest_changed_(after);
}

boost::asio::awaitable<bool> Timer::wait_until(TimePoint deadline) {
    return suspend<bool>([this, deadline](Continuation<bool> waiter) {
        TROUPE_ASSERT(lane_.in_this_thread(), "a timer belongs to its lane");
        waiting_ = lane_.timers().add(deadline, std::move(waiter));
    });
}

void Timer::cancel() {
    if (!waiting_) return;
    auto waiter = lane_.timers().remove(*waiting_);
    waiting_.reset();
    if (waiter) waiter.resume(false);
}

boost::asio::awaitable<void> sleep_until(Lane& lane, TimePoint deadline) {
    Timer timer(lane);
    co_await timer.wait_until(deadline);
}

boost::asio::awaitable<void> sleep_for(Lane& lane, Duration duration) {
    return sleep_until(lane, lane.now() + duration);
}

}  // namespace troupe::runtime
