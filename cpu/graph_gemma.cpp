// Gemma's blocks, whose branches are normed before and after. Gemma 2, with capped scores:
//   x += norm(W_o attention(rope(W_q n), rope(W_k n), W_v n))    n = norm(x)
//   x += norm(W_down (gelu(W_gate m) * (W_up m)))                m = norm(x)
// Gemma 3, without caps: queries and keys are normed by head, too.
#include "cpu/graph.hpp"

namespace troupe::cpu {
namespace {

void feed_forward(BlockPass& block) {
    block.norm_feed_forward_input();
    block.gate_up(Gate::gelu);
    block.add_normed_feed_forward();
}

}  // namespace

void gemma2_block(BlockPass& block) {
    block.norm_attention_input();
    block.project_queries_keys_values();
    block.rotate_and_store();
    block.attend();
    block.add_normed_attention();
    feed_forward(block);
}

void gemma3_block(BlockPass& block) {
    block.norm_attention_input();
    block.project_queries_keys_values();
    block.norm_queries_and_keys();
    block.rotate_and_store();
    block.attend();
    block.add_normed_attention();
    feed_forward(block);
}

}  // namespace troupe::cpu
