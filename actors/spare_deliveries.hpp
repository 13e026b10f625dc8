// SpareDeliveries: deliveries that hubs have read, on their way back to the outbox that fills them
// again, so that a step takes no memory for them. Shared by the scheduler, which takes, and the
// hubs, which give, each on its own thread.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "actors/messages.hpp"

namespace troupe::actors {

class SpareDeliveries {
 public:
    SpareDeliveries() { spares_.reserve(kSparesMax); }

    void give(Delivery used) {
        used.clear();
        const std::scoped_lock lock(mutex_);
        if (spares_.size() < kSparesMax) spares_.push_back(std::move(used));
    }
    // A new one where none has come back.
    [[nodiscard]] Delivery take() {
        const std::scoped_lock lock(mutex_);
        if (spares_.empty()) return {};
        Delivery spare = std::move(spares_.back());
        spares_.pop_back();
        return spare;
    }

 private:
    static constexpr std::size_t kSparesMax = 8;

    std::mutex mutex_;
    std::vector<Delivery> spares_;
};

// What its reader does with a delivery at the end.
inline void give_back(Delivery& read) {
    if (const auto home = std::move(read.home)) home->give(std::move(read));
}

}  // namespace troupe::actors
