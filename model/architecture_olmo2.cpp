// OLMo 2 (Team OLMo, 2025): each branch is normed after, not before, it is computed, and so are all
// queries and all keys of a token.
#include <fmt/format.h>

#include "model/architecture.hpp"

namespace troupe::model {
namespace {

void read_keys(KeyReader&, Hyperparameters& out) {
    out.graph = BlockGraph::olmo2;
    out.rope_order = RopeOrder::halves;
    out.norms_inputs = false;
    out.qk_norm_is_per_head = false;
}

LayerWeights read_layer(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h) {
    const auto post = [&](std::string_view part) {
        return tensors.norm(fmt::format("blk.{}.{}.weight", index, part), h.embedding_length);
    };
    LayerWeights layer;
    read_attention(tensors, index, h, layer);
    read_qk_norms(tensors, index, h, layer);
    layer.attn_post_norm = post("post_attention_norm");
    read_feed_forward(tensors, index, h, layer);
    layer.ffn_post_norm = post("post_ffw_norm");
    return layer;
}

}  // namespace

const Architecture kOlmo2{"olmo2", read_keys, read_layer};

}  // namespace troupe::model
