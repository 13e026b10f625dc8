// Qwen 3's block: Llama's, with each head's query and key normed before they are rotated.
//   x += W_o attention(rope(norm(W_q n)), rope(norm(W_k n)), W_v n)    n = norm(x)
//   x += W_down (silu(W_gate m) * (W_up m)), or that of experts        m = norm(x)
#include "cpu/graph.hpp"

namespace troupe::cpu {
namespace {

void attention(BlockPass& block) {
    block.norm_attention_input();
    block.project_queries_keys_values();
    block.norm_queries_and_keys();
    block.rotate_and_store();
    block.attend();
    block.add_attention();
}

}  // namespace

void qwen3_block(BlockPass& block) {
    attention(block);
    block.norm_feed_forward_input();
    block.gate_up(Gate::silu);
    block.add_feed_forward();
}

void qwen3_moe_block(BlockPass& block) {
    attention(block);
    block.norm_router_input();
    block.add_experts(Gate::silu);
}

}  // namespace troupe::cpu
