#include "cpu/rope_scaling.hpp"

#include <algorithm>
#include <cmath>

#include "cpu/kernels/rope.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

constexpr double kTwoPi = 6.283185307179586;

// How far pair i keeps its frequency, 1 to 0.
class YarnRamp {
 public:
    YarnRamp() = default;
    explicit YarnRamp(const model::Hyperparameters& h)
        : low_(std::max(0.0, std::floor(pair_of_turns(h, h.rope_scale.beta_fast)))),
          high_(std::min(h.rope_dimension_count - 1.0,
                         std::ceil(pair_of_turns(h, h.rope_scale.beta_slow)))) {}

    [[nodiscard]] double operator()(std::size_t i) const {
        const double width = std::max(0.001, high_ - low_);
        return 1.0 - std::clamp((static_cast<double>(i) - low_) / width, 0.0, 1.0);
    }

 private:
    // The pair that turns so often within the original context.
    static double pair_of_turns(const model::Hyperparameters& h, float turns) {
        const double length = h.rope_scale.original_context / (double{turns} * kTwoPi);
        return h.rope_dimension_count * natural_log(length) / (2.0 * natural_log(h.rope_freq_base));
    }

    double low_ = 0, high_ = 0;
};

}  // namespace

RopeAngles rope_angles(const model::Hyperparameters& h, std::span<const float> factors) {
    RopeAngles angles{rope_frequencies(h.rope_dimension_count, h.rope_freq_base),
                      h.rope_scale.magnitude};
    TROUPE_ASSERT(factors.empty() || factors.size() == angles.frequencies.size());
    const bool yarn = h.rope_scale.kind == model::RopeScaling::yarn;
    const YarnRamp kept = yarn ? YarnRamp(h) : YarnRamp();
    for (std::size_t i = 0; i < angles.frequencies.size(); ++i) {
        double& frequency = angles.frequencies[i];
        const double scaled = frequency / h.rope_scale.factor;
        frequency = yarn ? scaled * (1.0 - kept(i)) + frequency * kept(i) : scaled;
        if (!factors.empty()) frequency /= factors[i];
    }
    return angles;
}

RopeAngles local_rope_angles(const model::Hyperparameters& h) {
    return {rope_frequencies(h.rope_dimension_count, h.rope_freq_base_local), 1.0};
}

}  // namespace troupe::cpu
