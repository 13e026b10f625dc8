// StepCost: how the time of a step that only decodes grows with its rows, learned from finished
// steps. A pure core of the scheduler; what drafts are worth depends on it. Where weights are read
// once for all rows another row costs little; where arithmetic is the limit it costs its share.
//
// A step's time is taken as speed x shape(rows). The machine's speed drifts, and each step tells of
// it; of the shape only those tell that have another number of rows than the step before. So what
// was learned of one number stays comparable with what is measured now of another. What has not
// been seen for long is forgotten, the sooner the less often it was: a disturbed step that made
// drafts look dear is not believed for ever.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace troupe::actors {

class StepCost {
 public:
    // `model_drafted`: the step's time holds that of a draft model as well.
    void observe(std::uint32_t rows, bool model_drafted, std::int64_t compute_ns);

    // Relative to each other, above 0; rows >= 1. Between two numbers of rows that were seen it is
    // a straight line; beyond them it goes on like the last of it, and is too low rather than too
    // high where little is known: trying teaches.
    [[nodiscard]] double of(std::uint32_t rows, bool model_drafted) const;

 private:
    struct Point {
        double rows = 0;  // the mean of those seen; 0: none
        double shape = 0;
        std::uint64_t seen = 0;       // so many times
        std::uint64_t seen_last = 0;  // the number of that step
    };
    static constexpr std::size_t kClasses = 24;  // two for each power of two
    using Curve = std::array<Point, kClasses>;

    [[nodiscard]] static std::size_t class_of(std::uint32_t rows);
    void forget_the_old();
    [[nodiscard]] static double on_curve(const Curve& curve, double rows);

    double speed_ns_ = 0;  // 0: nothing seen
    std::uint64_t steps_ = 0;
    std::size_t latest_class_ = 0;  // of the last step seen
    Curve plain_{};
    Curve drafted_{};
};

}  // namespace troupe::actors
