// Llama's block, which is also that of Mistral, Qwen 2 (with biases), Phi-3 and SmolLM3:
//   x += W_o attention(rope(W_q n), rope(W_k n), W_v n)    n = norm(x)
//   x += W_down (silu(W_gate m) * (W_up m))                m = norm(x)
// and Mixtral's, in which the second line is a sum over experts.
#include "cpu/graph.hpp"

namespace troupe::cpu {
namespace {

void attention(BlockPass& block) {
    block.norm_attention_input();
    block.project_queries_keys_values();
    block.rotate_and_store();
    block.attend();
    block.add_attention();
}

}  // namespace

void llama_block(BlockPass& block) {
    attention(block);
    block.norm_feed_forward_input();
    block.gate_up(Gate::silu);
    block.add_feed_forward();
}

void mixtral_block(BlockPass& block) {
    attention(block);
    block.norm_router_input();
    block.add_experts(Gate::silu);
}

}  // namespace troupe::cpu
