// The set for ARM processors with dot products of signed bytes, everything else in NEON.
#include "cpu/kernels/dotprod_tile.hpp"
#include "cpu/kernels/kernel_table.hpp"
#include "cpu/kernels/matmul_driver.hpp"
#include "cpu/kernels/sets.hpp"

namespace troupe::cpu {
namespace {

std::uint64_t multiply_add_limit(std::uint64_t rounds) {
    constexpr int chains = 16;  // more than the instruction's latency times its rate
    const int8x16_t weights = vdupq_n_s8(7), x = vdupq_n_s8(-3);
    int32x4_t sums[chains] = {};
    for (std::uint64_t i = 0; i < rounds; ++i)
        for (int32x4_t& sum : sums)
            sum = vdotq_s32(sum, weights, x);
    for (int32x4_t& sum : sums)
        __asm__ volatile("" : "+w"(sum));
    return rounds * chains * 16;
}

}  // namespace

const Kernels& dotprod_kernels() {
    static constexpr Kernels kernels =
        kernel_table<NeonVector>("dotprod", matmul_quantized<DotprodTile>, multiply_add_limit);
    return kernels;
}

}  // namespace troupe::cpu
