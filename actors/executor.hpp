// Executor: runs submitted steps on the backend, in order, up to two outstanding. Lives on the
// executor lane and is the only caller of its Backend; receives RunStep and ExecutorShutdown, sends
// StepDone and ExecutorFailed to the scheduler.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <deque>
#include <optional>

#include "actors/messages.hpp"
#include "model/backend.hpp"
#include "runtime/address.hpp"
#include "runtime/lane.hpp"
#include "runtime/mailbox.hpp"

namespace troupe::actors {

// The core. A backend that fails loses every outstanding step; later ones are dropped as well,
// until step 0 says that the scheduler has begun afresh.
class Executor {
 public:
    explicit Executor(model::Backend& backend) : backend_(backend) {}

    // What the scheduler must hear, if the backend fails.
    [[nodiscard]] std::optional<ExecutorFailed> submit(RunStep step);

    // Blocks until the oldest outstanding step is done.
    [[nodiscard]] SchedulerMessage wait();

    [[nodiscard]] std::size_t outstanding() const { return outstanding_.size(); }

 private:
    [[nodiscard]] ExecutorFailed fail(const char* what);

    model::Backend& backend_;
    std::deque<RunStep> outstanding_;
    bool failed_ = false;
};

// The shell; ends with ExecutorShutdown or with its mailbox.
[[nodiscard]] boost::asio::awaitable<void> run_executor(
    runtime::Lane& lane, model::Backend& backend, runtime::Mailbox<ExecutorMessage>& inbox,
    runtime::Address<SchedulerMessage> scheduler);

}  // namespace troupe::actors
