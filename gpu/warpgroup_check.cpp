#include "gpu/warpgroup_check.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gpu/device_memory.hpp"
#include "gpu/kernels/half_matmul.hpp"
#include "model/half.hpp"
#include "model/hash_bytes.hpp"

namespace troupe::gpu {
namespace {

// Nine chunks: a part of two, others of one. Some more rows than the narrow kernels take.
constexpr std::uint32_t kRows = kNarrowRowsMax + 2;
constexpr std::uint32_t kOutputs = 40;
constexpr std::uint32_t kColumns = 9 * kChunkColumns;

// Magnitudes from 2^-10 to 2, of either sign: in a sum they cancel and are shifted out, so that
// another order, width or rounding of additions gives other bits.
std::vector<float> wide_numbers(std::size_t count, std::uint64_t seed) {
    std::vector<float> numbers(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t bits = model::mix64(seed * count + i);
        const float magnitude = std::ldexp(1.0F + static_cast<float>(bits & 0x3FF) / 1024,
                                           -static_cast<int>(bits >> 10 & 0xF) * 10 / 15);
        numbers[i] = bits >> 63 != 0 ? -magnitude : magnitude;
    }
    return numbers;
}

std::vector<float> multiply(const WeightMatrix& w, const float* x, HalfOrder order) {
    Stream stream;
    const DeviceBuffer<std::uint16_t> values(std::size_t{padded_half_rows(order, kRows)} *
                                             kColumns);
    const DeviceBuffer<float> unscale(kRows);
    const DeviceBuffer<float> out =
        DeviceBuffer<float>::upload(std::vector<float>(std::size_t{kRows} * kOutputs, -1.0F));
    const HalfRows halves{values.data(), unscale.data(), kColumns, order};
    to_halves({x, halves, kRows, kColumns, kColumns}, stream.get());
    half_matmul({w, halves, out.data(), kRows, kOutputs, false}, stream.get());
    stream.synchronise();
    return out.download();
}

}  // namespace

bool warpgroups_agree(const cudaDeviceProp& card) {
    if (card.major != 9 || card.minor != 0) return false;
    std::vector<std::uint16_t> weights;
    for (const float number : wide_numbers(std::size_t{kOutputs} * kColumns, 1))
        weights.push_back(model::float_to_half(number));
    const auto data = DeviceBuffer<std::uint16_t>::upload(weights);
    const WeightMatrix w{WeightType::f16, kOutputs, kColumns, data.data()};
    const auto x = DeviceBuffer<float>::upload(wide_numbers(std::size_t{kRows} * kColumns, 2));
    const std::vector<float> by_warps = multiply(w, x.data(), HalfOrder::rows);
    const std::vector<float> by_warpgroups = multiply(w, x.data(), HalfOrder::tiles);
    return std::memcmp(by_warps.data(), by_warpgroups.data(), by_warps.size() * sizeof(float)) == 0;
}

}  // namespace troupe::gpu
