// A llama model's weights as views into its GGUF file: every tensor that the forward pass needs,
// with its shape checked against the hyperparameters. Owns no bytes; valid as long as the GgufFile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/gguf.hpp"
#include "model/hyperparameters.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// `rows` outputs of `columns` inputs each, row-major: y[r] = sum over c of w[r][c] * x[c]. A file
// may choose an alignment of 1, so `bytes` are for memcpy and dequantise(), never for a cast.
struct Matrix {
    std::string_view name;
    TensorType type = TensorType::f32;
    std::uint32_t rows = 0;
    std::uint32_t columns = 0;
    std::span<const std::byte> bytes;

    [[nodiscard]] std::size_t row_bytes() const { return bytes.size() / rows; }
    [[nodiscard]] std::span<const std::byte> row(std::size_t index) const {
        return bytes.subspan(index * row_bytes(), row_bytes());
    }
};

struct LlamaLayer {
    Matrix attn_norm;    // [1][embedding_length], F32
    Matrix attn_q;       // [query_length][embedding_length], each head's rows for adjacent pairs
    Matrix attn_k;       // [kv_length][embedding_length], likewise
    Matrix attn_v;       // [kv_length][embedding_length]
    Matrix attn_output;  // [embedding_length][query_length]
    Matrix ffn_norm;     // [1][embedding_length], F32
    Matrix ffn_gate;     // [feed_forward_length][embedding_length]
    Matrix ffn_up;       // [feed_forward_length][embedding_length]
    Matrix ffn_down;     // [embedding_length][feed_forward_length]
};

struct LlamaWeights {
    Matrix token_embd;   // [vocabulary_size][embedding_length]
    Matrix output_norm;  // [1][embedding_length], F32
    Matrix output;       // [vocabulary_size][embedding_length]; token_embd where the head is tied
    bool tied_output = false;
    std::vector<LlamaLayer> layers;  // block_count of them
};

// Errors: a tensor that is missing, or has another shape or type, by name with both shapes; biases
// and rope factors, which would change the result and are not supported. Other tensors that the
// forward pass does not use are logged once and ignored.
[[nodiscard]] Result<LlamaWeights> read_llama_weights(const GgufFile& file,
                                                      const Hyperparameters& hyperparameters);

}  // namespace troupe::model
