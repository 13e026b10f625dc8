// Llama (Touvron et al., 2023), Mistral and the many others that are wired alike, and Mixtral
// (Jiang et al., "Mixtral of Experts", 2024), which files call llama, too.
#include "model/architecture.hpp"

namespace troupe::model {
namespace {

void read_keys(KeyReader& keys, Hyperparameters& out) {
    const std::uint32_t window = keys.find_u32("attention.sliding_window").value_or(0);
    for (LayerAttention& layer : out.layers)
        layer.window = window;
    if (keys.find_u32("expert_count").value_or(0) == 0) return;
    out.graph = BlockGraph::mixtral;
    read_expert_keys(keys, out.feed_forward_length, out);
}

LayerWeights read_layer(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h) {
    LayerWeights layer;
    read_attention(tensors, index, h, layer);
    read_feed_forward(tensors, index, h, layer);
    return layer;
}

}  // namespace

const Architecture kLlama{"llama", read_keys, read_layer};

}  // namespace troupe::model
