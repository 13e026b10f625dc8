// A model's weights as views into its GGUF file: every tensor that the forward pass needs, with its
// shape checked against the hyperparameters. Matrices own no bytes: they are valid as long as the
// GgufFile; vectors, being small, are copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/gguf.hpp"
#include "model/hyperparameters.hpp"
#include "model/row_order.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// That of a model's queries and keys.
[[nodiscard]] RowOrder row_order(const Hyperparameters& hyperparameters);

// `rows` outputs of `columns` inputs each, row-major: y[r] = sum over c of w[r][c] * x[c]. A file
// may choose an alignment of 1, so `bytes` are for memcpy and dequantise(), never for a cast.
struct Matrix {
    std::string_view name;
    TensorType type = TensorType::f32;
    std::uint32_t rows = 0;  // 0: there is none
    std::uint32_t columns = 0;
    std::span<const std::byte> bytes;
    RowOrder order;

    [[nodiscard]] std::size_t row_bytes() const { return bytes.size() / rows; }
    [[nodiscard]] std::span<const std::byte> row(std::size_t index) const {
        return bytes.subspan(order(static_cast<std::uint32_t>(index)) * row_bytes(), row_bytes());
    }
};

struct ExpertWeights {
    Matrix gate;  // [expert_feed_forward_length][embedding_length]
    Matrix up;    // likewise
    Matrix down;  // [embedding_length][expert_feed_forward_length]
};

// What an architecture does not have is empty.
struct LayerWeights {
    Matrix attn_norm;                  // [1][embedding_length], F32, like all norms
    Matrix attn_q;                     // [query_length][embedding_length]
    Matrix attn_k;                     // [kv_length][embedding_length]
    Matrix attn_v;                     // [kv_length][embedding_length]
    std::vector<float> attn_qkv_bias;  // [query_length + 2 kv_length]
    std::vector<float> attn_q_norm;    // [head_length], or all heads' [query_length]
    std::vector<float> attn_k_norm;    // [head_length], or all heads' [kv_length]
    Matrix attn_output;                // [embedding_length][query_length]
    Matrix attn_post_norm;             // [1][embedding_length]
    Matrix ffn_norm;                   // [1][embedding_length]
    Matrix ffn_gate;                   // [feed_forward_length][embedding_length]
    Matrix ffn_up;                     // [feed_forward_length][embedding_length]
    Matrix ffn_down;                   // [embedding_length][feed_forward_length]
    Matrix ffn_post_norm;              // [1][embedding_length]

    Matrix router;                       // [expert_count][embedding_length]
    std::vector<ExpertWeights> experts;  // instead of the three above
};

struct ModelWeights {
    Matrix token_embd;   // [vocabulary_size][embedding_length]
    Matrix output_norm;  // [1][embedding_length], F32
    Matrix output;       // [vocabulary_size][embedding_length]; token_embd where the head is tied
    bool tied_output = false;
    std::vector<LayerWeights> layers;  // block_count of them

    // [rope_dimension_count / 2], what frequencies are divided by; empty: by nothing. The long ones
    // are for contexts beyond RopeScale::original_context.
    std::vector<float> rope_factors;
    std::vector<float> rope_factors_long;
};

// Errors: a tensor that is missing, or has another shape or type, by name with both shapes; biases,
// norms and rope factors that the architecture does not have here, as leaving them out would change
// the result. Other tensors that the forward pass does not use are logged once and ignored.
[[nodiscard]] Result<ModelWeights> read_weights(const GgufFile& file,
                                                const Hyperparameters& hyperparameters);

}  // namespace troupe::model
