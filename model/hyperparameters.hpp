// A model's sizes and constants, read from GGUF metadata and checked: nothing after this needs to
// doubt them. A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/gguf.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// Limits on what a file may claim, wide of every published model.
inline constexpr std::uint32_t kLayersMax = 1024;
inline constexpr std::uint32_t kHeadsMax = 1024;
inline constexpr std::uint32_t kExpertsMax = 1024;
inline constexpr std::uint32_t kWidthMax = 1U << 18;
inline constexpr std::uint32_t kVocabularyMax = 1U << 22;
inline constexpr std::uint32_t kContextLengthMax = 1U << 27;

// How a block is wired: a file of cpu/graph_*.cpp each.
enum class BlockGraph : std::uint8_t { llama, mixtral, qwen3, qwen3_moe, gemma2, gemma3, olmo2 };

// Which elements of a head are rotated together in the file's matrices: (2i, 2i + 1), or i and its
// counterpart in the other half. read_weights() makes pairs of both.
enum class RopeOrder : std::uint8_t { pairs, halves };

// How the angles depend on the position; the formulas are at rope_angles() in cpu/rope_scaling.hpp.
enum class RopeScaling : std::uint8_t { none, linear, yarn, long_factors };

struct RopeScale {
    RopeScaling kind = RopeScaling::none;
    float factor = 1;                    // linear, yarn: positions are this much closer
    std::uint32_t original_context = 0;  // yarn, long_factors: trained for this before
    float magnitude = 1;                 // of cosines and sines
    float beta_fast = 32;                // yarn: turns within the original context ...
    float beta_slow = 1;                 // ... that make a frequency stay, or be scaled whole
};

// What differs between a model's layers.
struct LayerAttention {
    enum class Rope : std::uint8_t { usual, local, none };

    Rope rope = Rope::usual;
    std::uint32_t window = 0;  // looks at so many tokens, its own included; 0: all
};

struct Hyperparameters {
    std::string architecture;  // of the file: "llama"
    std::string name;          // for people; may be empty
    std::uint32_t block_count = 0;
    std::uint32_t context_length = 0;  // that the model was trained for
    std::uint32_t embedding_length = 0;
    std::uint32_t feed_forward_length = 0;
    std::uint32_t head_count = 0;
    std::uint32_t head_count_kv = 0;  // divides head_count; query head h uses h / heads_per_kv()
    std::uint32_t head_length = 0;    // of queries, keys and values alike; even
    std::uint32_t vocabulary_size = 0;
    float rms_epsilon = 0;
    float rope_freq_base = 0;
    std::uint32_t rope_dimension_count = 0;  // rotated elements of each head, the first ones
    RopeOrder rope_order = RopeOrder::pairs;
    RopeScale rope_scale;
    float rope_freq_base_local = 0;  // of layers with Rope::local, which are never scaled

    BlockGraph graph = BlockGraph::llama;
    std::vector<LayerAttention> layers;  // block_count of them
    float attention_scale = 0;           // of the scores; mostly 1 / sqrt(head_length)
    float attention_softcap = 0;         // scores become cap * tanh(score / cap); 0: they do not
    float output_softcap = 0;            // likewise the logits
    float embedding_scale = 1;
    bool norms_inputs = true;         // of attention and feed-forward; else their outputs alone
    bool qk_norm_is_per_head = true;  // where the graph norms queries and keys: each, or all heads
    bool has_fused_matrices = false;  // queries, keys, values; gate and up

    std::uint32_t expert_count = 0;  // 0: no mixture of experts
    std::uint32_t expert_used_count = 0;
    std::uint32_t expert_feed_forward_length = 0;

    [[nodiscard]] std::uint32_t query_length() const { return head_count * head_length; }
    [[nodiscard]] std::uint32_t kv_length() const { return head_count_kv * head_length; }
    [[nodiscard]] std::uint32_t heads_per_kv() const { return head_count / head_count_kv; }
};

// Errors: an architecture that is not known, by name and with the known ones; a key that is
// missing, of the wrong type, out of range or inconsistent with another, by name; kinds of rope
// scaling and experts that are not supported.
[[nodiscard]] Result<Hyperparameters> read_hyperparameters(const GgufFile& file);

// Whether a block is Llama's and nothing else, for a backend that knows no more: no windows, soft
// caps, experts or scaled positions. What weights may add (biases, factors) is not asked.
[[nodiscard]] bool is_plain_llama(const Hyperparameters& hyperparameters);

}  // namespace troupe::model
