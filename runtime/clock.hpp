// Time as the runtime sees it: one steady axis in nanoseconds, read through `Clock` by shells only
// and passed to cores as a value. The real clock and the simulator's virtual one share the type.
#pragma once

#include <chrono>

namespace troupe::runtime {

using Duration = std::chrono::nanoseconds;

// The tag of the axis. It has no now(): only a Clock object knows the time.
struct RuntimeTime {
    using duration = Duration;
    using rep = Duration::rep;
    using period = Duration::period;
    using time_point = std::chrono::time_point<RuntimeTime>;
    static constexpr bool is_steady = true;
};

using TimePoint = RuntimeTime::time_point;

class Clock {
 public:
    virtual ~Clock() = default;
    [[nodiscard]] virtual TimePoint now() const noexcept = 0;

 protected:
    Clock() = default;
    Clock(const Clock&) = default;
    Clock& operator=(const Clock&) = default;
};

// CLOCK_MONOTONIC. TimePoints count from the same origin as std::chrono::steady_clock.
class SteadyClock final : public Clock {
 public:
    [[nodiscard]] TimePoint now() const noexcept override {
        return TimePoint(std::chrono::steady_clock::now().time_since_epoch());
    }
};

// Time that moves only when told: simulator and tests. Not for use from several threads.
class VirtualClock final : public Clock {
 public:
    [[nodiscard]] TimePoint now() const noexcept override { return now_; }
    void advance_to(TimePoint time) noexcept {
        if (time > now_) now_ = time;
    }
    void advance_by(Duration duration) noexcept { advance_to(now_ + duration); }

 private:
    TimePoint now_{};
};

}  // namespace troupe::runtime
