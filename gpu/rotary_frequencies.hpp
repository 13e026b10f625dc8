// The angles by which rotary positions turn pairs of elements. A plain value.
#pragma once

#include <cstdint>
#include <vector>

namespace troupe::gpu {

class RotaryFrequencies {
 public:
    // theta^(-2i / dimensions) for pair i.
    RotaryFrequencies(std::uint32_t dimensions, double theta);

    // Appends [dimensions / 2][cos, sin] of a position, computed in double, rounded once.
    void append_angles(std::uint32_t position, std::vector<float>& angles) const;
    [[nodiscard]] std::vector<float> table(std::uint32_t positions) const;

 private:
    std::vector<double> frequencies_;
};

}  // namespace troupe::gpu
