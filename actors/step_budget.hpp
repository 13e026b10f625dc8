// StepBudget: how many prompt tokens a step may carry so that it ends within the latency target.
// A pure core of the scheduler. It learns from finished steps: the cost of a step that only
// decodes, for each power of two of rows, and the cost of a prompt token on top of that.
#pragma once

#include <array>
#include <cstdint>

namespace troupe::actors {

struct StepBudgetSettings {
    std::int64_t step_latency_ms = 40;      // while somebody's answer is being drawn
    std::int64_t prefill_latency_ms = 200;  // while nobody's is
    std::uint32_t tokens_per_step_max = 512;
    std::uint32_t prefill_tokens_min = 16;  // prompts always move
};

class StepBudget {
 public:
    explicit StepBudget(const StepBudgetSettings& settings) : settings_(settings) {}

    // Prompt tokens beside `decode_rows` rows.
    [[nodiscard]] std::uint32_t prefill_tokens(std::uint32_t decode_rows) const;

    void observe(std::uint32_t decode_rows, std::uint32_t prefill_tokens, std::int64_t compute_ns);

 private:
    static constexpr std::size_t kRowClasses = 16;

    [[nodiscard]] double decode_ns(std::uint32_t rows) const;
    [[nodiscard]] std::uint32_t whole_tiles(std::uint32_t tokens, std::uint32_t decode_rows) const;

    StepBudgetSettings settings_;
    std::array<double, kRowClasses> decode_ns_{};  // by bit width of the row count; 0: not seen
    double prefill_token_ns_ = 0;                  // 0: not seen
    std::uint32_t largest_seen_ = 0;               // prompt tokens of the largest step so far
};

}  // namespace troupe::actors
