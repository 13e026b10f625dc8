#include "cpu/graph.hpp"

#include "runtime/base/assert.hpp"

namespace troupe::cpu {

BlockFunction block_function(model::BlockGraph graph) {
    switch (graph) {
        case model::BlockGraph::llama:
            return llama_block;
        case model::BlockGraph::mixtral:
            return mixtral_block;
        case model::BlockGraph::qwen3:
            return qwen3_block;
        case model::BlockGraph::qwen3_moe:
            return qwen3_moe_block;
        case model::BlockGraph::gemma2:
            return gemma2_block;
        case model::BlockGraph::gemma3:
            return gemma3_block;
        case model::BlockGraph::olmo2:
            return olmo2_block;
    }
    TROUPE_ASSERT(false, "an architecture without a graph");
}

}  // namespace troupe::cpu
