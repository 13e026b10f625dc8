// Gemma 2 (Gemma Team, 2024): layers that look at a window take turns with layers that see all,
// scores and logits have soft caps, embeddings are scaled, and each branch is normed before it is
// added, too. Gemma 3 (2025): norms of queries and keys instead of caps, five layers with a window
// to one without, and positions of their own for the former.
#include <fmt/format.h>

#include <cmath>

#include "model/architecture.hpp"

namespace troupe::model {
namespace {

// The largest of each family scale scores by their width, not by the length of a head; files do
// not say so, and are told apart by the number of layers.
constexpr std::uint32_t kGemma2LayersOf27B = 46;
constexpr std::uint32_t kGemma3LayersOf27B = 62;

// In each group of `period` layers all but the last look at the window.
void read_windows(KeyReader& keys, std::uint32_t period, LayerAttention::Rope rope,
                  Hyperparameters& out) {
    const std::uint32_t window = keys.count("attention.sliding_window", kContextLengthMax);
    for (std::uint32_t i = 0; i < out.block_count; ++i) {
        if (i % period != period - 1) out.layers[i] = {rope, window};
    }
}

void read_common_keys(KeyReader& keys, std::uint32_t layers_of_27b, Hyperparameters& out) {
    out.rope_order = RopeOrder::halves;
    out.embedding_scale = std::sqrt(static_cast<float>(out.embedding_length));
    if (out.block_count != layers_of_27b) return;
    const auto width = static_cast<float>(out.embedding_length / out.head_count);
    out.attention_scale = keys.positive("attention.scale", 1.0F / std::sqrt(width));
}

void read_gemma2_keys(KeyReader& keys, Hyperparameters& out) {
    out.graph = BlockGraph::gemma2;
    read_common_keys(keys, kGemma2LayersOf27B, out);
    read_windows(keys, 2, LayerAttention::Rope::usual, out);
    out.attention_softcap = keys.positive("attn_logit_softcapping", 50.0F);
    out.output_softcap = keys.positive("final_logit_softcapping", 30.0F);
}

void read_gemma3_keys(KeyReader& keys, Hyperparameters& out) {
    out.graph = BlockGraph::gemma3;
    read_common_keys(keys, kGemma3LayersOf27B, out);
    read_windows(keys, 6, LayerAttention::Rope::local, out);
    out.rope_freq_base_local = keys.positive("rope.freq_base_swa", 10'000.0F);
}

LayerWeights read_gemma2_layer(TensorReader& tensors, std::uint32_t index,
                               const Hyperparameters& h) {
    const auto post = [&](std::string_view part) {
        return tensors.norm(fmt::format("blk.{}.{}.weight", index, part), h.embedding_length);
    };
    LayerWeights layer;
    read_attention(tensors, index, h, layer);
    layer.attn_post_norm = post("post_attention_norm");
    read_feed_forward(tensors, index, h, layer);
    layer.ffn_post_norm = post("post_ffw_norm");
    return layer;
}

LayerWeights read_gemma3_layer(TensorReader& tensors, std::uint32_t index,
                               const Hyperparameters& h) {
    LayerWeights layer = read_gemma2_layer(tensors, index, h);
    read_qk_norms(tensors, index, h, layer);
    return layer;
}

}  // namespace

const Architecture kGemma2{"gemma2", read_gemma2_keys, read_gemma2_layer};
const Architecture kGemma3{"gemma3", read_gemma3_keys, read_gemma3_layer};

}  // namespace troupe::model
