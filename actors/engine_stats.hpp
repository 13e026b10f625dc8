// EngineStats: the engine's numbers for /metrics and /slots. Written by the scheduler after each
// step, read by any thread at any time: relaxed atomics, each right by itself. Outlives a rebuild
// of the engine; counters never go down.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "actors/messages.hpp"

namespace troupe::actors {

inline constexpr std::size_t kRejectReasons = 4;  // of Rejected::Reason

// One writer, any number of readers.
template <class Number>
class StatCell {
 public:
    void set(Number value) { value_.store(value, std::memory_order_relaxed); }
    void add(Number value) { set(get() + value); }
    [[nodiscard]] Number get() const { return value_.load(std::memory_order_relaxed); }

 private:
    std::atomic<Number> value_{0};
};

// Upper bounds of a latency's buckets; one more bucket holds what is above the last.
inline constexpr std::array<double, 18> kLatencyBounds_s{0.001, 0.0025, 0.005, 0.01, 0.02, 0.04,
                                                         0.08,  0.15,   0.3,   0.6,  1.2,  2.5,
                                                         5.0,   10.0,   20.0,  40.0, 80.0, 160.0};

// A reader notices a gap of this length.
inline constexpr runtime::Duration kStall = std::chrono::milliseconds(500);

struct LatencyHistogram {
    std::array<StatCell<std::uint64_t>, kLatencyBounds_s.size() + 1> counts;
    StatCell<std::int64_t> sum_ns;

    void observe(runtime::Duration latency) {
        const double seconds = static_cast<double>(latency.count()) * 1e-9;
        std::size_t bucket = 0;
        while (bucket < kLatencyBounds_s.size() && seconds > kLatencyBounds_s[bucket])
            ++bucket;
        counts[bucket].add(1);
        sum_ns.add(latency.count());
    }
};

struct SlotStats {
    StatCell<std::uint64_t> request;  // 0: idle
    StatCell<std::uint32_t> prompt_tokens;
    StatCell<std::uint32_t> prompt_done;
    StatCell<std::uint32_t> generated_tokens;
};

struct EngineStats {
    explicit EngineStats(std::size_t slot_count) : slots(slot_count) {}

    // Now.
    StatCell<std::uint32_t> requests_running;
    StatCell<std::uint32_t> requests_waiting;
    StatCell<std::uint32_t> kv_pages_total;
    StatCell<std::uint32_t> kv_pages_leased;      // held by live requests
    StatCell<std::uint32_t> kv_pages_leased_max;  // the most since the start
    StatCell<std::uint32_t> kv_pages_cached;
    StatCell<std::uint64_t> kv_bytes_per_token;
    std::vector<SlotStats> slots;

    // Since the start.
    StatCell<std::uint64_t> prompt_tokens_total;  // computed, not from the cache
    StatCell<std::uint64_t> generation_tokens_total;
    StatCell<std::uint64_t> prefix_queried_tokens_total;
    StatCell<std::uint64_t> prefix_hit_tokens_total;
    StatCell<std::uint64_t> drafts_total;
    StatCell<std::uint64_t> draft_tokens_total;
    StatCell<std::uint64_t> accepted_tokens_total;   // of the drafts'
    StatCell<std::uint64_t> cancelled_tokens_total;  // drawn for answers that were cancelled
    StatCell<std::uint64_t> stalls_total;            // gaps within an answer above kStall
    StatCell<std::uint64_t> preemptions_total;
    StatCell<std::uint64_t> restarts_total;
    StatCell<std::uint64_t> dropped_rows_total;  // computed for requests that had ended
    StatCell<std::uint64_t> steps_total;
    // Of the time of steps: in the scheduler, in the backend (of that: drawing), in sending what a
    // step gave. The first and the last overlap the second where a step is planned while another
    // runs.
    StatCell<std::int64_t> steps_plan_ns_total;
    StatCell<std::int64_t> steps_compute_ns_total;
    StatCell<std::int64_t> steps_sample_ns_total;
    StatCell<std::int64_t> steps_deliver_ns_total;
    std::array<StatCell<std::uint64_t>, kFinishReasons> finished_total;
    std::array<StatCell<std::uint64_t>, kRejectReasons> rejected_total;

    LatencyHistogram queue;                // from Submit to the first plan that held it
    LatencyHistogram time_to_first_token;  // from Submit to the result of the step that drew it
    LatencyHistogram inter_token;          // between results that held tokens of one answer
    LatencyHistogram end_to_end;           // from Submit to an end by stop or length
    LatencyHistogram cancel;               // from the Cancel message to the release of its pages
};

}  // namespace troupe::actors
