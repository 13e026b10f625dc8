// How the blocks of each architecture are wired: one function each, which reads like the paper, in
// graph_*.cpp. It is called by the executor's thread; each step of it is shared with the compute
// threads, and what it works on is a row of x for each token.
#pragma once

#include "cpu/block_pass.hpp"
#include "model/hyperparameters.hpp"

namespace troupe::cpu {

void llama_block(BlockPass& block);
void mixtral_block(BlockPass& block);
void qwen3_block(BlockPass& block);
void qwen3_moe_block(BlockPass& block);
void gemma2_block(BlockPass& block);
void gemma3_block(BlockPass& block);
void olmo2_block(BlockPass& block);

[[nodiscard]] BlockFunction block_function(model::BlockGraph graph);

}  // namespace troupe::cpu
