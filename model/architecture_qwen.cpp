// Qwen 2 and 2.5 (Yang et al., 2024): Llama with biases for queries, keys and values. Qwen 3
// (2025): without them, but with norms of each head's queries and keys; and its mixture of experts.
#include "model/architecture.hpp"

namespace troupe::model {
namespace {

void read_qwen2_keys(KeyReader& keys, Hyperparameters& out) {
    out.rope_order = RopeOrder::halves;
    const std::uint32_t window = keys.find_u32("attention.sliding_window").value_or(0);
    for (LayerAttention& layer : out.layers)
        layer.window = window;
}

void read_qwen3_keys(KeyReader& keys, Hyperparameters& out) {
    read_qwen2_keys(keys, out);
    out.graph = BlockGraph::qwen3;
}

void read_qwen3_moe_keys(KeyReader& keys, Hyperparameters& out) {
    read_qwen2_keys(keys, out);
    out.graph = BlockGraph::qwen3_moe;
    read_expert_keys(keys, keys.count("expert_feed_forward_length", kWidthMax), out);
}

LayerWeights read_qwen2_layer(TensorReader& tensors, std::uint32_t index,
                              const Hyperparameters& h) {
    LayerWeights layer;
    read_attention(tensors, index, h, layer);
    read_feed_forward(tensors, index, h, layer);
    return layer;
}

LayerWeights read_qwen3_layer(TensorReader& tensors, std::uint32_t index,
                              const Hyperparameters& h) {
    LayerWeights layer = read_qwen2_layer(tensors, index, h);
    read_qk_norms(tensors, index, h, layer);
    return layer;
}

}  // namespace

const Architecture kQwen2{"qwen2", read_qwen2_keys, read_qwen2_layer};
const Architecture kQwen3{"qwen3", read_qwen3_keys, read_qwen3_layer};
const Architecture kQwen3Moe{"qwen3moe", read_qwen3_moe_keys, read_qwen3_layer};

}  // namespace troupe::model
