// Rotary position angles: cos and sin per position, computed in double by code of our own so that
// every machine has the same table.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace troupe::cpu {

// Natural logarithm of x > 0.
[[nodiscard]] double natural_log(double x);

// theta^(-2i / dimensions), i = 0 .. dimensions / 2 - 1.
[[nodiscard]] std::vector<double> rope_frequencies(std::size_t dimensions, double theta);

// (cos, sin) of position * frequency, times a magnitude, rounded to float32 once. Immutable after
// construction.
class RopeTable {
 public:
    // `positions` at most 2^24.
    RopeTable(std::span<const double> frequencies, std::size_t positions, double magnitude = 1.0);

    // One position's row of such a table: [frequencies][cos, sin]. `position` below 2^24, up to
    // which the angles are exact to float32's last bit.
    static void compute(std::span<const double> frequencies, double magnitude, std::size_t position,
                        float* out);

    // [pairs][cos, sin]
    [[nodiscard]] const float* angles(std::size_t position) const {
        return values_.data() + position * 2 * pairs_;
    }
    [[nodiscard]] std::size_t pairs() const { return pairs_; }
    [[nodiscard]] std::size_t positions() const { return values_.size() / (2 * pairs_); }

 private:
    std::size_t pairs_;
    std::vector<float> values_;
};

}  // namespace troupe::cpu
