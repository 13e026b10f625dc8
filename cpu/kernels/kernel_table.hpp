// The table of a set: the shared templates for its vector type, and its own quantised product.
#pragma once

#include <string_view>

#include "cpu/kernels/attention.hpp"
#include "cpu/kernels/kv_store.hpp"
#include "cpu/kernels/matmul_float.hpp"
#include "cpu/kernels/vector_math.hpp"

namespace troupe::cpu {

template <class V>
constexpr Kernels kernel_table(std::string_view name, decltype(Kernels::matmul_quantized) matmul,
                               decltype(Kernels::multiply_add_limit) limit) {
    using Elements = ElementKernels<V>;
    return {
        .name = name,
        .matmul_quantized = matmul,
        .matmul_float = matmul_float<V>,
        .quantize = Elements::quantize,
        .rms_norm = Elements::rms_norm,
        .rms_norm_quantize = Elements::rms_norm_quantize,
        .silu_mul = Elements::silu_mul,
        .silu_mul_quantize = Elements::silu_mul_quantize,
        .gelu_mul = Elements::gelu_mul,
        .gelu_mul_quantize = Elements::gelu_mul_quantize,
        .soft_cap = Elements::soft_cap,
        .add = Elements::add,
        .rope = Elements::rope,
        .store_kv = KvStore<V>::store_kv,
        .attention = attention<V>,
        .argmax = Elements::argmax,
        .max = Elements::max,
        .multiply_add_limit = limit,
    };
}

}  // namespace troupe::cpu
