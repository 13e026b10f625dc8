// Waiting for a time, the same in the product and in the simulator. Each lane owns a TimerQueue;
// what makes it fire differs (an Asio timer on a real thread, the simulator's virtual clock).
// Everything here belongs to its lane's thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "runtime/clock.hpp"
#include "runtime/continuation.hpp"

namespace troupe::runtime {

class Lane;

// Waiters by deadline; equal deadlines fire in the order they were added.
class TimerQueue {
 public:
    struct Key {
        TimePoint deadline;
        std::uint64_t sequence = 0;
        friend auto operator<=>(const Key&, const Key&) = default;
    };

    // `on_earliest_changed` is told the earliest deadline when it has changed and after each
    // fire_due(); nothing when none is left.
    using EarliestChanged = std::function<void(std::optional<TimePoint>)>;
    explicit TimerQueue(EarliestChanged on_earliest_changed = {});

    // `waiter` is resumed with true when the deadline has come.
    Key add(TimePoint deadline, Continuation<bool> waiter);
    // Takes the waiter out; empty if it has fired already.
    [[nodiscard]] Continuation<bool> remove(const Key& key);
    // Resumes all waiters due at `now`; gives their number.
    std::size_t fire_due(TimePoint now);

    [[nodiscard]] std::optional<TimePoint> next_deadline() const;

    // For the lane's end: unwinds who still waits and tells nobody.
    void abandon();

 private:
    void tell_if_changed(std::optional<TimePoint> before);

    EarliestChanged on_earliest_changed_;
    std::map<Key, Continuation<bool>> waiting_;
    std::uint64_t next_sequence_ = 0;
};

// One waiting coroutine at a time; may be used again after each wait.
class Timer {
 public:
    explicit Timer(Lane& lane) : lane_(lane) {}
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    ~Timer() { cancel(); }

    // True: the time has come (at once, after one hop, if it had passed). False: cancel() was
    // called.
    [[nodiscard]] boost::asio::awaitable<bool> wait_until(TimePoint deadline);

    // Ends the wait, if there is one; a wait whose time has come stays true.
    void cancel();

 private:
    Lane& lane_;
    std::optional<TimerQueue::Key> waiting_;
};

[[nodiscard]] boost::asio::awaitable<void> sleep_until(Lane& lane, TimePoint deadline);
[[nodiscard]] boost::asio::awaitable<void> sleep_for(Lane& lane, Duration duration);

}  // namespace troupe::runtime
