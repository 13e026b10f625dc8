// A model's weights as the CPU computes with them: every matrix repacked into panels, in one
// buffer; norms and embedding rows stay in the file's mapping. Immutable once packed.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "cpu/compute_threads.hpp"
#include "cpu/kernels/aligned_buffer.hpp"
#include "cpu/kernels/packing.hpp"
#include "model/gguf.hpp"
#include "model/hyperparameters.hpp"
#include "model/load_progress.hpp"
#include "model/token.hpp"
#include "model/weights.hpp"
#include "runtime/base/result.hpp"

namespace troupe::cpu {

enum class Arithmetic {
    native,   // weights with the values of the file; quantised ones times int8 activations
    float32,  // all weights expanded to float32, float activations and KV: slow, for comparing
};

struct PackedExpert {
    PackedMatrix gate;
    PackedMatrix up;
    PackedMatrix down;
};

// What the architecture does not have is empty.
struct PackedLayer {
    std::span<const float> attention_norm;  // [width]
    // Queries, keys and values on top of each other; one matrix where their types are one.
    std::vector<PackedMatrix> qkv;
    std::span<const float> qkv_bias;  // [queries, keys, values]
    std::span<const float> q_norm;    // [head length], or [queries]
    std::span<const float> k_norm;    // [head length], or [keys]
    PackedMatrix attention_output;
    std::span<const float> attention_post_norm;  // [width]
    std::span<const float> ffn_norm;             // [width]
    PackedMatrix gate;
    PackedMatrix up;
    PackedMatrix down;
    std::span<const float> ffn_post_norm;  // [width]

    PackedMatrix router;                // [experts]
    std::vector<PackedExpert> experts;  // instead of the three above
};

class PackedModel {
 public:
    // Reads the model from `file`, which must outlive the result, and packs it on all threads;
    // `progress`, which may be null, is told of all of the file's bytes on the way.
    // Errors: those of read_hyperparameters and read_weights; invalid_input for weights that
    // are not finite; out_of_memory.
    [[nodiscard]] static Result<PackedModel> pack(const model::GgufFile& file,
                                                  Arithmetic arithmetic, ComputeThreads& threads,
                                                  model::LoadProgress* progress = nullptr);

    [[nodiscard]] const model::Hyperparameters& hyperparameters() const { return hp_; }
    [[nodiscard]] const std::vector<PackedLayer>& layers() const { return layers_; }
    [[nodiscard]] std::span<const float> output_norm() const { return output_norm_; }  // [width]
    [[nodiscard]] const PackedMatrix& output() const { return output_; }

    // What rope's frequencies are divided by where `context_length` tokens are served; may be
    // empty.
    [[nodiscard]] std::span<const float> rope_factors(std::uint32_t context_length) const;
    [[nodiscard]] std::size_t weight_bytes() const { return buffer_.bytes(); }

    // Writes a token's embedding, width floats.
    void embed(model::TokenId token, std::span<float> out) const;

 private:
    PackedModel() = default;

    model::Hyperparameters hp_;
    model::Matrix token_embd_;
    std::deque<std::vector<float>> norms_;  // whose elements stay where they are
    std::vector<float> rope_factors_;
    std::vector<float> rope_factors_long_;
    std::vector<PackedLayer> layers_;
    std::span<const float> output_norm_;
    PackedMatrix output_;
    AlignedBuffer buffer_;

    friend class Packer;
};

}  // namespace troupe::cpu
