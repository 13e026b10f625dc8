// A lane is what an actor lives on: one io_context run by one thread for life, with a name, a
// clock, timers and a trace. NamedThread (thread.hpp) is the real one, SimLane (sim.hpp) the
// simulator's; actors take a Lane& and cannot tell which.
//
//     NamedThread engine("engine", clock, report);
//     Mailbox<SchedulerMessage> inbox(capacity);
//     engine.spawn("scheduler", run_scheduler(engine, inbox));
//     engine.start();
//     ...
//     inbox.close();    // run_scheduler() leaves its loop
//     engine.finish();  // the thread ends with its last coroutine
//     engine.join();
//
// Lifetime: lanes are made before, and destroyed after, the mailboxes and actors that use them; and
// nothing is destroyed before the lanes have been joined.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "runtime/clock.hpp"
#include "runtime/timer.hpp"
#include "runtime/trace.hpp"

namespace troupe::runtime {

// An exception that left a coroutine or a handler: always a bug, never lost.
struct LaneFailure {
    std::string lane;
    std::string coroutine;  // the name given to spawn(); "handler" for a posted function
    std::string what;

    friend bool operator==(const LaneFailure&, const LaneFailure&) = default;
};

// Called on the lane where it happened.
using FailureHandler = std::function<void(const LaneFailure&)>;

class Lane {
 public:
    using Executor = boost::asio::io_context::executor_type;

    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;
    virtual ~Lane();

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] boost::asio::io_context& context() noexcept { return context_; }
    [[nodiscard]] Executor executor() noexcept { return context_.get_executor(); }
    [[nodiscard]] const Clock& clock() const noexcept { return clock_; }
    [[nodiscard]] TimePoint now() const noexcept { return clock_.now(); }

    // From any thread. The coroutine first runs later, on this lane.
    void spawn(std::string coroutine_name, boost::asio::awaitable<void> coroutine);

    // What follows is for code that runs on this lane.
    [[nodiscard]] bool in_this_thread() noexcept { return executor().running_in_this_thread(); }
    [[nodiscard]] TimerQueue& timers() noexcept { return timers_; }
    [[nodiscard]] virtual Trace& trace() noexcept = 0;
    // `event` is a string literal.
    void note(std::string_view event, std::int64_t first = 0, std::int64_t second = 0) {
        trace().record({now(), name_, event, first, second});
    }
    // Something that began then and ends now.
    void note_since(TimePoint begin, std::string_view event, std::int64_t first = 0,
                    std::int64_t second = 0) {
        trace().record({begin, name_, event, first, second, now() - begin});
    }
    // Lets everything that is ready on this lane run first.
    [[nodiscard]] boost::asio::awaitable<void> yield();
    // Simulator: the thread is inside a blocking call until some virtual time. False on a real
    // thread, which cannot be both blocked and asked.
    [[nodiscard]] virtual bool blocked() const noexcept { return false; }

 protected:
    Lane(std::string name, const Clock& clock, FailureHandler on_failure,
         TimerQueue::EarliestChanged on_earliest_timer = {});

    void report_failure(std::string_view coroutine, std::exception_ptr error) const;
    void release_work() { work_.reset(); }

 private:
    using WorkGuard = boost::asio::executor_work_guard<Executor>;

    const std::string name_;
    const Clock& clock_;
    const FailureHandler on_failure_;
    TimerQueue timers_;  // before the context: coroutines it unwinds may cancel timers
    boost::asio::io_context context_{1};  // 1: posting to the own lane takes no lock
    std::optional<WorkGuard> work_;
};

// Calls `function`, which may block the thread, and gives what it returns (not void). On a real
// thread that is all; in the simulator, where it returns at once after SimLane::block_for(), the
// caller goes on when the virtual wait is over.
template <class Function>
[[nodiscard]] boost::asio::awaitable<std::invoke_result_t<Function&>> run_blocking(
    Lane& lane, Function function) {
    auto result = function();
    if (lane.blocked()) co_await lane.yield();
    co_return result;
}

}  // namespace troupe::runtime
