// SmolLM3 (2025): Llama whose every fourth layer rotates nothing (Yang et al., "RoPE to NoPE and
// Back Again", 2025).
#include "model/architecture.hpp"

namespace troupe::model {
namespace {

constexpr std::uint32_t kPeriod = 4;  // files do not say it

void read_keys(KeyReader&, Hyperparameters& out) {
    for (std::uint32_t i = kPeriod - 1; i < out.block_count; i += kPeriod)
        out.layers[i].rope = LayerAttention::Rope::none;
}

LayerWeights read_layer(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h) {
    LayerWeights layer;
    read_attention(tensors, index, h, layer);
    read_feed_forward(tensors, index, h, layer);
    return layer;
}

}  // namespace

const Architecture kSmolLm3{"smollm3", read_keys, read_layer};

}  // namespace troupe::model
