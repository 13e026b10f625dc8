#include "actors/executor.hpp"

#include <exception>
#include <utility>
#include <variant>
#include <vector>

#include "actors/limits.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::actors {

std::optional<ExecutorFailed> Executor::submit(RunStep step) {
    try {
        if (step.plan->step == 0) {
            TROUPE_ASSERT(outstanding_.empty(), "a scheduler begins afresh after a failure only");
            failed_ = false;
            backend_.reset();
        }
        if (failed_) return std::nullopt;
        TROUPE_ASSERT(outstanding_.size() < limits::kStepsInFlightMax);
        outstanding_.push_back(std::move(step));
        backend_.submit(*outstanding_.back().plan);
    } catch (const std::exception& error) {
        return fail(error.what());
    }
    return std::nullopt;
}

SchedulerMessage Executor::wait() {
    TROUPE_ASSERT(!outstanding_.empty());
    try {
        backend_.wait(*outstanding_.front().result);
    } catch (const std::exception& error) {
        return fail(error.what());
    }
    RunStep done = std::move(outstanding_.front());
    outstanding_.pop_front();
    done.result->step = done.plan->step;
    return StepDone{std::move(done.plan), std::move(done.result)};
}

ExecutorFailed Executor::fail(const char* what) {
    failed_ = true;
    outstanding_.clear();
    return {what};
}

boost::asio::awaitable<void> run_executor(runtime::Lane& lane, model::Backend& backend,
                                          runtime::Mailbox<ExecutorMessage>& inbox,
                                          runtime::Address<SchedulerMessage> scheduler) {
    Executor executor(backend);
    std::vector<ExecutorMessage> batch;
    for (;;) {
        if (executor.outstanding() > 0) {
            inbox.drain(batch);  // a step that came meanwhile is submitted before the wait
        } else if (!co_await inbox.receive_all(batch)) {
            co_return;
        }
        for (ExecutorMessage& message : batch) {
            if (std::holds_alternative<ExecutorShutdown>(message)) co_return;
            if (auto failure = executor.submit(std::move(std::get<RunStep>(message)))) {
                scheduler.send(std::move(*failure));
            }
        }
        if (executor.outstanding() == 0) continue;
        scheduler.send(co_await runtime::run_blocking(lane, [&] { return executor.wait(); }));
    }
}

}  // namespace troupe::actors
