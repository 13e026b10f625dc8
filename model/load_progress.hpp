// How far the weights of a start have come: the threads that prepare them add, whoever tells people
// reads. Of a model and the one that drafts for it together. Safe from every thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace troupe::model {

class LoadProgress {
 public:
    // What is going to be added, in bytes of the models' files; before the first is added.
    void expect(std::uint64_t bytes) { expected_ += bytes; }
    void add(std::uint64_t bytes) { added_.fetch_add(bytes, std::memory_order_relaxed); }

    // From 0 to 1; never less than it was, once all that is expected is known.
    [[nodiscard]] double loaded() const {
        const auto expected = static_cast<double>(expected_.load(std::memory_order_relaxed));
        const auto added = static_cast<double>(added_.load(std::memory_order_relaxed));
        return expected == 0 ? 0 : std::min(added / expected, 1.0);
    }

 private:
    std::atomic<std::uint64_t> expected_ = 0;
    std::atomic<std::uint64_t> added_ = 0;
};

}  // namespace troupe::model
