// The architectures that load: what each one's file says beyond the keys that all have, and which
// tensors a block is made of. One file each, architecture_*.cpp; docs/models.md says how to add
// one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/hyperparameters.hpp"
#include "model/key_reader.hpp"
#include "model/tensor_reader.hpp"
#include "model/weights.hpp"

namespace troupe::model {

struct Architecture {
    std::string_view name;  // "general.architecture"

    // Completes what read_hyperparameters() has read of the keys that all architectures share.
    void (*read_keys)(KeyReader& keys, Hyperparameters& out);

    // The tensors of block `index`.
    LayerWeights (*read_layer)(TensorReader& tensors, std::uint32_t index,
                               const Hyperparameters& h);
};

extern const Architecture kLlama;
extern const Architecture kQwen2;
extern const Architecture kQwen3;
extern const Architecture kQwen3Moe;
extern const Architecture kGemma2;
extern const Architecture kGemma3;
extern const Architecture kPhi3;
extern const Architecture kSmolLm3;
extern const Architecture kOlmo2;

// Null where none has this name.
[[nodiscard]] const Architecture* find_architecture(std::string_view name);

// All names, for people: "llama, qwen2, ...".
[[nodiscard]] std::string known_architectures();

// ---- What most architectures have ---------------------------------------------------------------

// attn_norm; attn_q, attn_k, attn_v or, fused, attn_qkv; their biases if there are any;
// attn_output.
void read_attention(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h,
                    LayerWeights& out);

// attn_q_norm and attn_k_norm.
void read_qk_norms(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h,
                   LayerWeights& out);

// ffn_norm; ffn_gate, ffn_up (fused: both in ffn_up) and ffn_down, or the router and the experts',
// stacked (ffn_gate_exps) or one tensor each (ffn_gate.0).
void read_feed_forward(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h,
                       LayerWeights& out);

// expert_count, expert_used_count; `feed_forward_length` is each expert's.
void read_expert_keys(KeyReader& keys, std::uint32_t feed_forward_length, Hyperparameters& out);

}  // namespace troupe::model
