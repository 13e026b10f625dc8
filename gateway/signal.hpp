// A wake-up between coroutines of one io thread: what an HTTP connection's writer sleeps on. Not
// for use from several threads. Notifications do not add up: one that finds nobody waiting is
// remembered once.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

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

}  // namespace troupe::gateway
