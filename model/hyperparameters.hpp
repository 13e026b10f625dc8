// A model's sizes and constants, read from GGUF metadata and checked: nothing after this needs to
// doubt them. A plain value.
#pragma once

#include <cstdint>
#include <string>

#include "model/gguf.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// Limits on what a file may claim, wide of every published model of this architecture.
inline constexpr std::uint32_t kLayersMax = 1024;
inline constexpr std::uint32_t kHeadsMax = 1024;
inline constexpr std::uint32_t kWidthMax = 1U << 18;
inline constexpr std::uint32_t kVocabularyMax = 1U << 22;
inline constexpr std::uint32_t kContextLengthMax = 1U << 27;

struct Hyperparameters {
    std::string architecture;  // "llama"
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
    // Rotated elements of each head, the first ones, in adjacent pairs (2i, 2i + 1): GGML's NORM
    // convention, which converters permute llama's weights for.
    std::uint32_t rope_dimension_count = 0;

    [[nodiscard]] std::uint32_t query_length() const { return head_count * head_length; }
    [[nodiscard]] std::uint32_t kv_length() const { return head_count_kv * head_length; }
    [[nodiscard]] std::uint32_t heads_per_kv() const { return head_count / head_count_kv; }
};

// Errors: an architecture other than llama, by name and with the known ones; a key that is missing,
// of the wrong type, out of range or inconsistent with another, by name; rope scaling, mixture of
// experts and layers that differ in shape, which are not supported.
[[nodiscard]] Result<Hyperparameters> read_hyperparameters(const GgufFile& file);

}  // namespace troupe::model
