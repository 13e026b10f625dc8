// Phi-3 and Phi-4 (Abdin et al., 2024): Llama with fused matrices, heads that may be rotated in
// part, and, for long contexts, a factor for each frequency (Ding et al., "LongRoPE", 2024).
#include "model/architecture.hpp"

namespace troupe::model {
namespace {

void read_keys(KeyReader& keys, Hyperparameters& out) {
    out.rope_order = RopeOrder::halves;
    out.has_fused_matrices = true;
    const std::uint32_t window = keys.find_u32("attention.sliding_window").value_or(0);
    for (LayerAttention& layer : out.layers)
        layer.window = window;
    // Files of long-context models name no type of scaling: the factors are there.
    if (keys.find_u32("rope.scaling.original_context_length") == std::nullopt) return;
    RopeScale& scale = out.rope_scale;
    scale.original_context = keys.count("rope.scaling.original_context_length", kContextLengthMax);
    if (scale.original_context >= out.context_length) return;
    scale.kind = RopeScaling::long_factors;
    scale.magnitude = keys.positive("rope.scaling.attn_factor", 1.0F);
}

LayerWeights read_layer(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h) {
    LayerWeights layer;
    read_attention(tensors, index, h, layer);
    read_feed_forward(tensors, index, h, layer);
    return layer;
}

}  // namespace

const Architecture kPhi3{"phi3", read_keys, read_layer};

}  // namespace troupe::model
