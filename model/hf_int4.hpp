// Weights of 4 bits as AWQ and GPTQ store them, as blocks that hold the same numbers: Q4_0 where
// all zero points are 8, else Q8_0, whose bytes hold the quant minus its zero point; float32 where
// a block's columns have several scales (GPTQ's order by activation). Pure.
//
// A matrix of `rows` outputs and `columns` inputs has the value scale * (quant - zero), where scale
// and zero are those of the row and of the column's group. Eight numbers lie in a 32-bit word:
//   AWQ:  qweight [columns][rows / 8], word order 0 2 4 6 1 3 5 7; qzeros [groups][rows / 8] alike
//   GPTQ: qweight [columns / 8][rows]; qzeros [groups][rows / 8], minus one in its first format;
//         g_idx [columns], a column's group; where it is left out: columns in order
//   both: scales [groups][rows], F16
// Formats: Lin et al., "AWQ", 2023, and the AutoAWQ project (WQLinear_GEMM); Frantar et al.,
// "GPTQ", 2022, and the GPTQModel project (TorchQuantLinear).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/hf_config.hpp"
#include "model/safetensors.hpp"
#include "model/tensor_types.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// A matrix's tensors; null where the folder has none.
struct Int4Matrix {
    const SafeTensor* weights = nullptr;  // qweight
    const SafeTensor* zeros = nullptr;    // qzeros
    const SafeTensor* scales = nullptr;   // scales
    const SafeTensor* groups = nullptr;   // g_idx
};

// Which part a tensor of this name is, or null.
[[nodiscard]] const SafeTensor* Int4Matrix::*int4_part(std::string_view name);

struct UnpackedMatrix {
    TensorType type = TensorType::q8_0;
    std::uint64_t rows = 0;
    std::uint64_t columns = 0;
    std::vector<std::byte> bytes;
};

// Errors: invalid_input for parts that are missing or do not fit together, unsupported for scales
// of another type than F16.
[[nodiscard]] Result<UnpackedMatrix> unpack_int4(const Int4Matrix& matrix,
                                                 const HfQuantisation& quantisation);

}  // namespace troupe::model
