// The last events of a lane (or of a whole simulation) in a bounded ring, and a digest of all
// events since the start, so that two runs can be compared. Owned and written by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/clock.hpp"

namespace troupe::runtime {

// `lane` and `name` are not copied: string literals, or the name of a lane that outlives the
// trace's readers.
struct TraceEvent {
    TimePoint time;
    std::string_view lane;
    std::string_view name;
    std::int64_t first = 0;
    std::int64_t second = 0;
    Duration took{};  // from `time` on; 0: a moment

    friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

class Trace {
 public:
    explicit Trace(std::size_t events_max);

    void record(const TraceEvent& event);

    // Oldest first; at most events_max.
    [[nodiscard]] std::vector<TraceEvent> events() const;
    // All events ever recorded, those the ring has dropped included.
    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
    // Depends on every event ever recorded and on their order.
    [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }
    // One line an event: "12.000345 engine step 7 32", seconds since the clock's origin; behind it
    // what it took, if it did: "+120us".
    [[nodiscard]] std::string text() const;

 private:
    std::size_t events_max_;
    std::vector<TraceEvent> ring_;
    std::uint64_t count_ = 0;
    std::uint64_t digest_ = 0;
};

}  // namespace troupe::runtime
