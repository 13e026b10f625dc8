// A wake-up between coroutines of one io thread: what a connection's writer sleeps on. Not for use
// from several threads. Notifications do not add up: one that finds nobody waiting is remembered
// once.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "runtime/continuation.hpp"

namespace troupe::gateway {

inline constexpr auto as_tuple_awaitable = boost::asio::as_tuple(boost::asio::use_awaitable);

class Signal {
 public:
    explicit Signal(boost::asio::any_io_executor executor) : timer_(std::move(executor)) {}

    void notify() {
        notified_ = true;
        timer_.cancel();
    }

    // Waits for a notification, at most `timeout`. True where there was one.
    boost::asio::awaitable<bool> wait_for(std::chrono::milliseconds timeout) {
        if (!notified_) {
            timer_.expires_after(timeout);
            co_await timer_.async_wait(as_tuple_awaitable);
        }
        co_return std::exchange(notified_, false);
    }

 private:
    boost::asio::steady_timer timer_;
    bool notified_ = false;
};

// The same for one who waits as long as it takes: cheaper, because there is no timer.
class Wakeup {
 public:
    void notify() {
        notified_ = true;
        if (waiter_) std::exchange(waiter_, {}).resume();
    }

    boost::asio::awaitable<void> wait() {
        if (!notified_) {
            auto store = [this](runtime::Continuation<> rest) { waiter_ = std::move(rest); };
            co_await runtime::suspend<>(store);
        }
        notified_ = false;
    }

 private:
    runtime::Continuation<> waiter_;
    bool notified_ = false;
};

}  // namespace troupe::gateway
