// A llama model's weights as the CPU computes with them: every matrix repacked into panels, in one
// buffer; norms and embedding rows stay in the file's mapping. Immutable once packed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cpu/compute_threads.hpp"
#include "cpu/kernels/aligned_buffer.hpp"
#include "cpu/kernels/packing.hpp"
#include "model/gguf.hpp"
#include "model/hyperparameters.hpp"
#include "model/token.hpp"
#include "model/weights.hpp"
#include "runtime/base/result.hpp"

namespace troupe::cpu {

enum class Arithmetic {
    native,   // block-quantised weights as they are, times int8 activations; other types as float32
    float32,  // all weights expanded to float32, float activations and KV: slow, for comparing
};

struct PackedLayer {
    std::span<const float> attention_norm;  // [width]
    PackedMatrix qkv;                       // queries, keys, values on top of each other
    PackedMatrix attention_output;
    std::span<const float> ffn_norm;  // [width]
    PackedMatrix gate;
    PackedMatrix up;
    PackedMatrix down;
};

class PackedModel {
 public:
    // Reads the model from `file`, which must outlive the result, and packs it on all threads.
    // Errors: those of read_hyperparameters and read_llama_weights; invalid_input for weights that
    // are not finite; out_of_memory.
    [[nodiscard]] static Result<PackedModel> pack(const model::GgufFile& file,
                                                  Arithmetic arithmetic, ComputeThreads& threads);

    [[nodiscard]] const model::Hyperparameters& hyperparameters() const { return hp_; }
    [[nodiscard]] const std::vector<PackedLayer>& layers() const { return layers_; }
    [[nodiscard]] std::span<const float> output_norm() const { return output_norm_; }  // [width]
    [[nodiscard]] const PackedMatrix& output() const { return output_; }
    [[nodiscard]] std::size_t weight_bytes() const { return buffer_.bytes(); }

    // Writes a token's embedding, width floats.
    void embed(model::TokenId token, std::span<float> out) const;

 private:
    PackedModel() = default;

    model::Hyperparameters hp_;
    model::Matrix token_embd_;
    std::vector<std::vector<float>> norms_;
    std::vector<PackedLayer> layers_;
    std::span<const float> output_norm_;
    PackedMatrix output_;
    AlignedBuffer buffer_;

    friend class Packer;
};

}  // namespace troupe::cpu
