#include "runtime/lane.hpp"

#include <boost/asio/co_spawn.hpp>
#include <exception>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::runtime {

Lane::Lane(std::string name, const Clock& clock, FailureHandler on_failure,
           TimerQueue::EarliestChanged on_earliest_timer)
    : name_(std::move(name)),
      clock_(clock),
      on_failure_(std::move(on_failure)),
      timers_(std::move(on_earliest_timer)),
      work_(std::in_place, context_.get_executor()) {
    TROUPE_ASSERT(on_failure_ != nullptr, "someone must hear of failures");
}

Lane::~Lane() {
    timers_.abandon();
}

void Lane::spawn(std::string coroutine_name, boost::asio::awaitable<void> coroutine) {
    boost::asio::co_spawn(context_, std::move(coroutine),
                          [this, called = std::move(coroutine_name)](std::exception_ptr error) {
                              if (error) report_failure(called, error);
                          });
}

boost::asio::awaitable<void> Lane::yield() {
    return suspend<>([](Continuation<> rest) { rest.resume(); });
}

void Lane::report_failure(std::string_view coroutine, std::exception_ptr error) const {
    LaneFailure failure{name_, std::string(coroutine), "an exception of unknown type"};
    try {
        std::rethrow_exception(std::move(error));
    } catch (const std::exception& exception) {
        failure.what = exception.what();
    } catch (...) {  // the text above says so
    }
    on_failure_(failure);
}

}  // namespace troupe::runtime
