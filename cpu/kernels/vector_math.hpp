// The element-wise kernels, written once for any vector type of sixteen float lanes; each set
// instantiates them with its own type, so the sets agree by construction. A vector type V lives in
// an unnamed namespace (two files compiled with different flags must never share a function) and
// has
//   set, load, load_partial(p, n: the rest 0), load_half, load_half_partial, load_bfloat16,
//   load_bytes, load_bytes_partial (int8), load_bits<B>(p, n: of 16 bytes the B bits from bit n * B
//   on), load_quants(p, shift, mask): (word i >> shift) & mask of 16 32-bit words; store,
//   store_partial, store_half_partial; + - * / fma; max(a, b) = a > b ? a : b; min likewise (so b
//   where one is NaN); zero_where_less(x, limit, y) = x < limit ? 0 : y; add_to_exponent(x,
//   biased): x * 2^n, where biased = integer_bias + n; rotate_pairs(x, angles): Kernels::rope on
//   eight pairs; equal_mask: bit i = lanes i are equal; larger_mask(x): bit i = |lane i| > lane i
//   of x; zero_where_larger(x): those lanes 0; sign_mask: bit i = lane i has its sign bit set;
//   sum(): lanes i and i + 8, i and i + 4, i and i + 2, 0 and 1; largest();
//   largest_magnitude_bits(a, b): the largest of all |x| as bits (a NaN above infinity);
//   round_to_bytes(a, b, out): 32 values, half to even, and their sum; registers: vectors a kernel
//   may keep in registers; attention_tile, matmul_rows, matmul_panels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cpu/kernels/kernel_types.hpp"

namespace troupe::cpu {

// e^x by 2^n * polynomial (the coefficients of Cephes' expf), about 1 ulp; 0 below -87.3, and held
// at e^88 above 88. A NaN stays.
template <class V>
V exponential(V x) {
    const V bounded = V::min(V::set(88.0F), x);
    const V biased = V::fma(bounded, V::set(1.44269504F), V::set(integer_bias));
    const V n = biased - V::set(integer_bias);
    V r = V::fma(n, V::set(-0.693359375F), bounded);
    r = V::fma(n, V::set(2.12194440e-4F), r);
    V p = V::fma(V::set(1.9875691500e-4F), r, V::set(1.3981999507e-3F));
    p = V::fma(p, r, V::set(8.3334519073e-3F));
    p = V::fma(p, r, V::set(4.1665795894e-2F));
    p = V::fma(p, r, V::set(1.6666665459e-1F));
    p = V::fma(p, r, V::set(5.0000001201e-1F));
    p = V::fma(p, r * r, r) + V::set(1.0F);
    return V::zero_where_less(x, V::set(-87.3F), V::add_to_exponent(p, biased));
}

template <class V>
V silu_times(V gate, V up) {
    const V one = V::set(1.0F);
    return gate / (one + exponential(V::set(0.0F) - gate)) * up;
}

// gelu(g) = g / (1 + exp(-2 sqrt(2 / pi) (g + 0.044715 g^3))), the form with the tangent.
template <class V>
V gelu_times(V gate, V up) {
    const V one = V::set(1.0F);
    const V inner = V::fma(V::set(0.044715F) * gate * gate, gate, gate);
    return gate / (one + exponential(V::set(-1.59576912F) * inner)) * up;
}

// cap * tanh(x / cap), as cap * (1 - 2 / (exp(2 x / cap) + 1)).
template <class V>
V capped(V x, V cap) {
    const V one = V::set(1.0F), two = V::set(2.0F);
    return cap * (one - two / (exponential(two * x / cap) + one));
}

inline constexpr std::uint32_t infinity_bits = 0x7F800000U;
inline constexpr std::uint32_t smallest_bits = 0x0D800000U;  // 2^-100: 127 / max stays finite

// Takes the block's outlier, if it has one, out of a and b and makes `bits`, those of max|x|, those
// of the rest.
template <class V>
[[gnu::always_inline]] inline void take_outlier(V& a, V& b, std::uint32_t& bits, float ratio,
                                                OutlierBlock& out, std::size_t lane) {
    out.place[lane] = 0;
    if (bits < smallest_bits || bits >= infinity_bits) [[unlikely]]
        return;
    const V limit = V::set(std::bit_cast<float>(bits) * (1.0F / ratio));
    const std::uint32_t large = a.larger_mask(limit) | b.larger_mask(limit) << 16;
    if ((large & (large - 1)) != 0) return;
    const bool negative = ((a.sign_mask() | b.sign_mask() << 16) & large) != 0;
    out.x[lane] = std::bit_cast<float>(bits | (negative ? 0x80000000U : 0U));
    out.place[lane] = static_cast<std::uint8_t>(1 + __builtin_ctz(large));
    a = a.zero_where_larger(limit);
    b = b.zero_where_larger(limit);
    bits = V::largest_magnitude_bits(a, b);
}

template <class V>
[[gnu::always_inline]] inline void quantize_block(V a, V b, std::uint32_t bits,
                                                  ActivationBlock& out) {
    std::int32_t sum = 0;
    if (bits >= smallest_bits && bits < infinity_bits) [[likely]] {
        const float largest = std::bit_cast<float>(bits);
        const V inverse = V::set(127.0F / largest);
        sum = V::round_to_bytes(a * inverse, b * inverse, out.q);
        out.d = largest / 127.0F;
        out.s = out.d * static_cast<float>(sum);
    } else {
        for (std::int8_t& q : out.q)
            q = 0;
        out.d = bits >= infinity_bits ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
        out.s = out.d;
    }
    out.start_u4 = integer_bias_bits - 8 * sum;
    out.start_u8 = integer_bias_bits - 128 * sum;
}

// Quantises the row whose 16 values from column k on are value(k).
template <class V, class Value>
void quantize_values(const QuantizedRows& out, std::size_t row, Value value) {
    for (std::size_t index = 0; index < out.blocks_of_row(); ++index) {
        V a = value(index * block_columns), b = value(index * block_columns + 16);
        std::uint32_t bits = V::largest_magnitude_bits(a, b);
        take_outlier(a, b, bits, out.outlier_ratio, out.outlier(row, index), row % tile_rows);
        quantize_block(a, b, bits, out.block(row, index));
    }
}

// Writes `count` values, 16 at a time: value(at) computes them from at(p), the inputs p[k], p[k +
// 1] ...
template <class V, class Value>
void write_values(float* out, std::size_t count, Value value) {
    std::size_t k = 0;
    for (; k + 16 <= count; k += 16) {
        value([=](const float* x) { return V::load(x + k); }).store(out + k);
    }
    if (k == count) return;
    value([=](const float* x) {
        return V::load_partial(x + k, count - k);
    }).store_partial(out + k, count - k);
}

template <class V>
struct ElementKernels {
    static void quantize(const float* x, const QuantizedRows& out, std::size_t row) {
        quantize_values<V>(out, row, [=](std::size_t k) { return V::load(x + k); });
    }

    static float inverse_rms(const float* x, std::size_t columns, float epsilon) {
        V squares = V::set(0.0F);
        std::size_t k = 0;
        for (; k + 16 <= columns; k += 16) {
            const V values = V::load(x + k);
            squares = V::fma(values, values, squares);
        }
        if (k < columns) {
            const V values = V::load_partial(x + k, columns - k);
            squares = V::fma(values, values, squares);
        }
        const float mean = squares.sum() / static_cast<float>(columns);
        return 1.0F / __builtin_sqrtf(mean + epsilon);
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

    static void silu_mul(const float* gate, const float* up, std::size_t count, float* out) {
        write_values<V>(out, count, [=](auto at) { return silu_times<V>(at(gate), at(up)); });
    }

    static void silu_mul_quantize(const float* gate, const float* up, const QuantizedRows& out,
                                  std::size_t row) {
        quantize_values<V>(out, row, [=](std::size_t k) {
            return silu_times<V>(V::load(gate + k), V::load(up + k));
        });
    }

    static void gelu_mul(const float* gate, const float* up, std::size_t count, float* out) {
        write_values<V>(out, count, [=](auto at) { return gelu_times<V>(at(gate), at(up)); });
    }

    static void gelu_mul_quantize(const float* gate, const float* up, const QuantizedRows& out,
                                  std::size_t row) {
        quantize_values<V>(out, row, [=](std::size_t k) {
            return gelu_times<V>(V::load(gate + k), V::load(up + k));
        });
    }

    static void soft_cap(float* x, std::size_t count, float cap) {
        write_values<V>(x, count, [=](auto at) { return capped<V>(at(x), V::set(cap)); });
    }

    static void add(float* x, const float* y, std::size_t count) {
        write_values<V>(x, count, [=](auto at) { return at(x) + at(y); });
    }

    static void rope(float* x, std::size_t heads, std::size_t head_dim, const float* angles,
                     std::size_t pairs) {
        for (std::size_t h = 0; h < heads; ++h) {
            float* head = x + h * head_dim;
            write_values<V>(head, 2 * pairs,
                            [=](auto at) { return V::rotate_pairs(at(head), at(angles)); });
        }
    }

    static float max(const float* x, std::size_t count) {
        constexpr float lowest = -std::numeric_limits<float>::infinity();
        V best[4] = {V::set(lowest), V::set(lowest), V::set(lowest), V::set(lowest)};
        std::size_t k = 0;
        for (; k + 64 <= count; k += 64) {
            for (std::size_t i = 0; i < 4; ++i)
                best[i] = V::max(V::load(x + k + 16 * i), best[i]);
        }
        V all = V::max(V::max(best[0], best[1]), V::max(best[2], best[3]));
        for (; k + 16 <= count; k += 16)
            all = V::max(V::load(x + k), all);
        float largest = all.largest();
        for (; k < count; ++k)
            largest = x[k] > largest ? x[k] : largest;
        return largest;
    }

    static std::size_t argmax(const float* x, std::size_t count) {
        const float largest = max(x, count);
        const V wanted = V::set(largest);
        std::size_t k = 0;
        for (; k + 16 <= count; k += 16) {
            const std::uint32_t mask = V::load(x + k).equal_mask(wanted);
            if (mask != 0) return k + static_cast<std::size_t>(__builtin_ctz(mask));
        }
        for (; k < count; ++k) {
            if (x[k] == largest) return k;
        }
        return 0;
    }
};

}  // namespace troupe::cpu
