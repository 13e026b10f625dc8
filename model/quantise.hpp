// From float32 to the element types that `troupe convert` writes: bit for bit as PyPI's gguf does
// (gguf/quants.py), which is ggml's reference for Q8_0, F16 and BF16; the K formats, which it only
// reads, as quantise_superblocks.hpp does. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "model/tensor_types.hpp"

namespace troupe::model {

inline constexpr std::array kQuantisableTypes{
    TensorType::f32,  TensorType::f16,  TensorType::bf16, TensorType::q8_0,
    TensorType::q4_0, TensorType::q4_1, TensorType::q5_0, TensorType::q5_1,
    TensorType::q4_k, TensorType::q5_k, TensorType::q6_k,
};

// `numbers`: whole blocks of `type`, one of the above, all finite; `out`: exactly their bytes.
void quantise(TensorType type, std::span<const float> numbers, std::span<std::byte> out);

}  // namespace troupe::model
