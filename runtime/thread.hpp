// NamedThread: the real lane. One OS thread, named for `top -H` and debuggers, runs one io_context.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <string>
#include <thread>

#include "runtime/lane.hpp"

namespace troupe::runtime {

class NamedThread final : public Lane {
 public:
    // Linux shows 15 bytes of a thread's name; a longer one is a bug. `clock` reads steady time.
    NamedThread(std::string name, const Clock& clock, FailureHandler on_failure);
    // Stops and joins, if it still runs.
    ~NamedThread() override;

    void start();
    // Instead of start(): runs the lane on the calling thread until finish() or stop().
    void run();

    // From any thread. The lane ends when its last coroutine has ended.
    void finish();
    // From any thread. The lane ends after the current handler; suspended coroutines stay where
    // they are and are unwound on destruction. For ends in disorder.
    void stop();
    // Returns when the thread has ended; not from the lane itself.
    void join();

    [[nodiscard]] Trace& trace() noexcept override { return trace_; }

 private:
    void arm(std::optional<TimePoint> earliest);

    Trace trace_;
    // Made for the first timer: a lane without timers and sockets needs no reactor, and asks on it
    // make no system call.
    std::optional<boost::asio::steady_timer> wake_;
    std::thread thread_;
};

}  // namespace troupe::runtime
