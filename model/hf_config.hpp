// What a Hugging Face folder's config.json says about a model, as GGUF's metadata: the keys that
// llama.cpp's converter writes. Pure.
// Fields: https://github.com/huggingface/transformers, src/transformers/models/*/configuration_*.py
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/gguf_builder.hpp"
#include "model/row_order.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// How a folder's integer weights are packed (config.json, "quantization_config").
struct HfQuantisation {
    enum class Method : std::uint8_t { none, gptq, awq };

    Method method = Method::none;
    bool zeros_are_less_one = false;  // GPTQ's first format stores zero points minus one
};

// What the tensors' names and bytes need to be understood.
struct HfModelShape {
    std::string architecture;  // GGUF's name for it
    // Where GGUF wants the rotated halves of queries and keys interleaved.
    RowOrder qk_order;
    float norm_offset = 0;  // added to what norms say
    bool ties_output = false;
    HfQuantisation quantisation;
};

// Writes "general.architecture" and the keys under it, and the tensors that are made of config.json
// alone: factors of rope.
// Errors: invalid_input or unsupported, naming the field.
[[nodiscard]] Result<HfModelShape> read_hf_config(std::string_view config_json, GgufBuilder& out);

}  // namespace troupe::model
