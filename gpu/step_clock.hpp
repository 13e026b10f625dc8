// How long a card has nothing to do between steps, by its own clock: events before and behind the
// kernels of each. Belongs to the executor's thread.
#pragma once

#include <array>
#include <cstdint>

#include "gpu/device_memory.hpp"

namespace troupe::gpu {

class StepClock {
 public:
    // Around what a step puts on the stream that computes. Of the steps begun, at most two are
    // unread.
    void begin(const Stream& compute) { times_[begun_ % kSteps].begun.record(compute); }
    void end(const Stream& compute) { times_[begun_++ % kSteps].ended.record(compute); }

    // From the end of the step before to the begin of the oldest unread one, which has been
    // computed; 0 for the first. In ns.
    [[nodiscard]] std::int64_t read_idle_ns() {
        const std::uint64_t step = read_++;
        if (step == 0) return 0;
        const double seconds =
            times_[step % kSteps].begun.seconds_since(times_[(step - 1) % kSteps].ended);
        return static_cast<std::int64_t>(seconds * 1e9);
    }

 private:
    static constexpr std::size_t kSteps = 3;  // the unread ones and the one read last
    struct Times {
        Event begun{Timed{}};
        Event ended{Timed{}};
    };

    std::array<Times, kSteps> times_;
    std::uint64_t begun_ = 0;
    std::uint64_t read_ = 0;
};

}  // namespace troupe::gpu
