#include "gpu/rotary_frequencies.hpp"

#include "model/math.hpp"

namespace troupe::gpu {

RotaryFrequencies::RotaryFrequencies(std::uint32_t dimensions, double theta) {
    for (std::uint32_t d = 0; d < dimensions; d += 2) {
        const double share = static_cast<double>(d) / dimensions;
        frequencies_.push_back(model::math::exp(-share * model::math::log(theta)));
    }
}

void RotaryFrequencies::append_angles(std::uint32_t position, std::vector<float>& angles) const {
    for (const double frequency : frequencies_) {
        const double angle = position * frequency;
        angles.push_back(static_cast<float>(model::math::cos(angle)));
        angles.push_back(static_cast<float>(model::math::sin(angle)));
    }
}

std::vector<float> RotaryFrequencies::table(std::uint32_t positions) const {
    std::vector<float> angles;
    angles.reserve(std::size_t{positions} * 2 * frequencies_.size());
    for (std::uint32_t position = 0; position < positions; ++position)
        append_angles(position, angles);
    return angles;
}

}  // namespace troupe::gpu
