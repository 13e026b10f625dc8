// Norms whose squares are added up in four sums, and the table of everything else.
#pragma once

#include <cstddef>

#include "cpu/free_order/online_attention.hpp"
#include "cpu/free_order/tables.hpp"
#include "cpu/kernels/kernel_table.hpp"
#include "cpu/kernels/vector_math.hpp"

namespace troupe::cpu {

template <class V>
struct FreeElements {
    static float inverse_rms(const float* x, std::size_t columns, float epsilon) {
        V squares[4] = {V::set(0.0F), V::set(0.0F), V::set(0.0F), V::set(0.0F)};
        std::size_t k = 0;
        for (; k + 64 <= columns; k += 64) {
            for (std::size_t i = 0; i < 4; ++i) {
                const V values = V::load(x + k + 16 * i);
                squares[i] = V::fma(values, values, squares[i]);
            }
        }
        for (; k < columns; k += 16) {
            const std::size_t left = columns - k;
            const V values = left < 16 ? V::load_partial(x + k, left) : V::load(x + k);
            squares[0] = V::fma(values, values, squares[0]);
        }
        const V all = (squares[0] + squares[1]) + (squares[2] + squares[3]);
        return 1.0F / __builtin_sqrtf(all.sum() / static_cast<float>(columns) + epsilon);
    }
    static void rms_norm(const float* x, const float* weight, std::size_t columns, float epsilon,
                         float* out) {
        const V r = V::set(inverse_rms(x, columns, epsilon));
        write_values<V>(out, columns, [=](auto at) { return at(x) * r * at(weight); });
    }
    static void rms_norm_quantize(const float* x, const float* weight, float epsilon,
                                  const QuantizedRows& out, std::size_t row) {
        const V r = V::set(inverse_rms(x, out.columns, epsilon));
        quantize_values<V>(out, row,
                           [=](std::size_t k) { return V::load(x + k) * r * V::load(weight + k); });
    }
};

template <class V>
FreeOrderTable free_order_table(decltype(Kernels::matmul_quantized) matmul) {
    FreeOrderTable table{kernel_table<V>("free_order", matmul, nullptr), attend_pages<V>};
    table.kernels.rms_norm = FreeElements<V>::rms_norm;
    table.kernels.rms_norm_quantize = FreeElements<V>::rms_norm_quantize;
    table.kernels.attention = online_attention<V>;
    return table;
}

}  // namespace troupe::cpu
