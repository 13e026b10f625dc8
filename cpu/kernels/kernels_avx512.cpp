// The AVX-512 set: VNNI dot products, everything else from the shared templates.
#include "cpu/kernels/avx512_tile.hpp"
#include "cpu/kernels/kernel_table.hpp"
#include "cpu/kernels/matmul_driver.hpp"
#include "cpu/kernels/sets.hpp"
#include "cpu/kernels/vector_avx512.hpp"

namespace troupe::cpu {
namespace {

std::uint64_t multiply_add_limit(std::uint64_t rounds) {
    constexpr int chains = 16;  // more than the instruction's latency times its rate
    const __m512i weights = _mm512_set1_epi8(7), x = _mm512_set1_epi8(-3);
    __m512i sums[chains] = {};
    for (std::uint64_t i = 0; i < rounds; ++i)
        for (__m512i& sum : sums)
            sum = _mm512_dpbusd_epi32(sum, weights, x);
    for (__m512i& sum : sums)
        __asm__ volatile("" : "+v"(sum));
    return rounds * chains * 64;
}

}  // namespace

const Kernels& avx512_kernels() {
    static constexpr Kernels kernels =
        kernel_table<Avx512Vector>("avx512", matmul_quantized<VnniTile>, multiply_add_limit);
    return kernels;
}

}  // namespace troupe::cpu
