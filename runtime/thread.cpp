#include "runtime/thread.hpp"

#include <pthread.h>

#include <boost/asio/post.hpp>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::runtime {

namespace {

constexpr std::size_t thread_name_bytes_max = 15;  // pthread_setname_np(3), without the zero
constexpr std::size_t trace_events_max = 16'384;   // of 72 bytes; memory is taken as it fills

}  // namespace

NamedThread::NamedThread(std::string name, const Clock& clock, FailureHandler on_failure)
    : Lane(std::move(name), clock, std::move(on_failure),
           [this](std::optional<TimePoint> earliest) { arm(earliest); }),
      trace_(trace_events_max) {
    TROUPE_ASSERT(Lane::name().size() <= thread_name_bytes_max);
}

NamedThread::~NamedThread() {
    stop();
    join();
}

void NamedThread::start() {
    TROUPE_ASSERT(!thread_.joinable(), "a lane is started once");
    thread_ = std::thread([this] { run(); });
    pthread_setname_np(thread_.native_handle(), name().c_str());
}

void NamedThread::run() {
    for (;;) {
        try {
            context().run();
            return;
        } catch (...) {
            report_failure("handler", std::current_exception());
        }
    }
}

void NamedThread::finish() {
    boost::asio::post(context(), [this] { release_work(); });
}

void NamedThread::stop() {
    context().stop();
}

void NamedThread::join() {
    if (thread_.joinable()) thread_.join();
}

void NamedThread::arm(std::optional<TimePoint> earliest) {
    if (!wake_) wake_.emplace(context());
    if (!earliest) {
        wake_->cancel();
        return;
    }
    wake_->expires_at(std::chrono::steady_clock::time_point(earliest->time_since_epoch()));
    wake_->async_wait([this](boost::system::error_code error) {
        if (!error) timers().fire_due(now());
    });
}

}  // namespace troupe::runtime
