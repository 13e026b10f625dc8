// From the tensors of a Hugging Face folder to those of a GGUF: names, shapes and the few bytes
// that differ. Matrices stay views; norms and biases become float32; 4-bit integer weights become
// blocks (model/hf_int4.hpp).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/gguf_builder.hpp"
#include "model/hf_config.hpp"
#include "model/safetensors.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// GGUF's name for "model.layers.0.mlp.up_proj.weight": "blk.0.ffn_up.weight". A name that is not
// known is its own: whoever reads the model decides whether it may be left out.
[[nodiscard]] std::string gguf_tensor_name(std::string_view name, std::string_view architecture);

// `tensors` are all of the folder's; their bytes must live as long as what `out` makes.
// Errors: invalid_input or unsupported, naming the tensor.
[[nodiscard]] Result<> add_hf_tensors(std::span<const SafeTensor> tensors,
                                      const HfModelShape& shape, GgufBuilder& out);

}  // namespace troupe::model
