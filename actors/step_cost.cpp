#include "actors/step_cost.hpp"

#include <algorithm>
#include <bit>

namespace troupe::actors {
namespace {

constexpr double kShareAlone = 0.2;   // weight of a new measurement, in the speed alone
constexpr double kShareOfBoth = 0.1;  // likewise, in speed and shape each
constexpr double kOutlier = 4.0;      // a step this far off was disturbed: clipped
constexpr double kRowShare = 0.01;    // of the step, for one more row, where nothing is known

constexpr std::uint64_t kStepsRemembered = 64;  // for each time that a number of rows was seen
constexpr std::uint64_t kSeenOften = 8;         // at most so many count

}  // namespace

void StepCost::observe(std::uint32_t rows, bool model_drafted, std::int64_t compute_ns) {
    if (compute_ns <= 0 || rows == 0) return;
    const auto spent = static_cast<double>(compute_ns);
    if (speed_ns_ == 0) speed_ns_ = spent;
    ++steps_;
    const std::size_t number = class_of(rows) + (model_drafted ? kClasses : 0);
    Point& point = (model_drafted ? drafted_ : plain_)[class_of(rows)];
    if (point.rows == 0) {
        point = {.rows = static_cast<double>(rows), .shape = spent / speed_ns_};
    } else {
        const double expected = speed_ns_ * of(rows, model_drafted);
        const double off = std::clamp(spent / expected, 1 / kOutlier, kOutlier) - 1;
        const bool same = number == latest_class_;
        speed_ns_ *= 1 + (same ? kShareAlone : kShareOfBoth) * off;
        const double share = std::max(kShareOfBoth, 1 / (1 + static_cast<double>(point.seen)));
        if (!same) point.shape *= 1 + share * off;
        point.rows += (static_cast<double>(rows) - point.rows) * kShareOfBoth;
    }
    ++point.seen;
    point.seen_last = steps_;
    latest_class_ = number;
    if (steps_ % kStepsRemembered == 0) forget_the_old();
}

void StepCost::forget_the_old() {
    for (Curve* curve : {&plain_, &drafted_}) {
        for (Point& point : *curve) {
            const std::uint64_t kept = kStepsRemembered * std::min(point.seen, kSeenOften);
            if (steps_ - point.seen_last > kept) point = {};
        }
    }
}

double StepCost::of(std::uint32_t rows, bool model_drafted) const {
    const double plain = on_curve(plain_, rows);
    return model_drafted ? std::max(plain, on_curve(drafted_, rows)) : plain;
}

std::size_t StepCost::class_of(std::uint32_t rows) {
    const auto octave = static_cast<std::size_t>(std::bit_width(rows)) - 1;
    const bool upper_half = octave > 0 && ((rows >> (octave - 1)) & 1U) != 0;
    return std::min(2 * octave + (upper_half ? 1 : 0), kClasses - 1);
}

double StepCost::on_curve(const Curve& curve, double rows) {
    Point below, before, above;  // `before` comes before `below`
    for (const Point& point : curve) {
        if (point.rows == 0) continue;
        if (point.rows > rows) {
            above = point;
            break;
        }
        before = below;
        below = point;
    }
    if (below.rows == 0) return above.rows == 0 ? 1 : above.shape;
    const Point& other = above.rows != 0 ? above : before;
    const double slope = other.rows == 0 ? kRowShare * below.shape / below.rows
                                         : (other.shape - below.shape) / (other.rows - below.rows);
    return below.shape + std::max(slope, 0.0) * (rows - below.rows);
}

}  // namespace troupe::actors
