// OLMo 2's block, whose branches read x as it is and are normed after:
//   x += norm(W_o attention(rope(norm(W_q x)), rope(norm(W_k x)), W_v x))
//   x += norm(W_down (silu(W_gate x) * (W_up x)))
#include "cpu/graph.hpp"

namespace troupe::cpu {

void olmo2_block(BlockPass& block) {
    block.take_attention_input();
    block.project_queries_keys_values();
    block.norm_queries_and_keys();
    block.rotate_and_store();
    block.attend();
    block.add_normed_attention();
    block.take_feed_forward_input();
    block.gate_up(Gate::silu);
    block.add_normed_feed_forward();
}

}  // namespace troupe::cpu
