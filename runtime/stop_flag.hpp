// A request to stop, shared by the one who may ask (a session) and those who look (the scheduler at
// every plan). Lock-free, readable from any thread; the only object in the product with shared
// ownership, because it must outlive whichever of its holders goes first.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace troupe::runtime {

enum class StopReason : std::uint8_t {
    none,          // not asked to stop
    cancelled,     // the client asked
    disconnected,  // the client is gone
    deadline,      // out of time
    shutdown,      // the process is ending
};

class StopFlag {
 public:
    [[nodiscard]] static std::shared_ptr<StopFlag> make() { return std::make_shared<StopFlag>(); }

    // The first reason stays. True if it is this one.
    bool request(StopReason reason) noexcept {
        auto expected = StopReason::none;
        return reason_.compare_exchange_strong(expected, reason, std::memory_order_acq_rel);
    }

    [[nodiscard]] StopReason reason() const noexcept {
        return reason_.load(std::memory_order_acquire);
    }
    [[nodiscard]] bool requested() const noexcept { return reason() != StopReason::none; }

 private:
    std::atomic<StopReason> reason_{StopReason::none};
};

using SharedStopFlag = std::shared_ptr<StopFlag>;

}  // namespace troupe::runtime
