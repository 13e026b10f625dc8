// A model's weights in device memory, repacked for the kernels: all of them, or a rank's share
// (shares.hpp). Immutable once uploaded; belongs to the executor's thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gpu/device_memory.hpp"
#include "gpu/kernels/weights.hpp"
#include "gpu/shares.hpp"
#include "model/gguf.hpp"
#include "model/hyperparameters.hpp"
#include "model/load_progress.hpp"
#include "model/weights.hpp"
#include "runtime/base/result.hpp"

namespace troupe::gpu {

struct MatrixBuffer {
    WeightMatrix view;
    DeviceBuffer<std::byte> data;
    DeviceBuffer<std::uint16_t> scales;
    DeviceBuffer<std::byte> high;

    [[nodiscard]] std::size_t bytes() const { return data.bytes() + scales.bytes() + high.bytes(); }
};

// Matrices that are multiplied as one keep their type where all have one and the same that kernels
// read; else they become halves, or, where a number is too large for one, float32.
[[nodiscard]] WeightType common_type(std::span<const model::Matrix* const> parts);

// Repacks matrices on top of each other, as `type`, and uploads them. Throws BackendError.
[[nodiscard]] MatrixBuffer upload_matrix(std::span<const model::Matrix* const> parts,
                                         WeightType type);

struct DeviceLayer {
    DeviceBuffer<float> attention_norm;  // [width]
    MatrixBuffer qkv;                    // queries, keys, values
    DeviceBuffer<float> qkv_bias;        // empty where there are none, as the next two
    DeviceBuffer<float> q_norm, k_norm;  // [head_length]
    MatrixBuffer attention_output;
    DeviceBuffer<float> ffn_norm;  // [width]
    MatrixBuffer gate_up;          // gate, then up
    MatrixBuffer down;
};

struct DeviceModel {
    RankOf rank;
    model::Hyperparameters hp;  // with the rank's numbers of heads and inner columns
    MatrixBuffer token_embd;
    std::vector<DeviceLayer> layers;
    DeviceBuffer<float> output_norm;  // [width]
    MatrixBuffer output;              // the rank's rows; empty where the head is the embedding
    std::uint64_t weight_bytes = 0;
    std::uint64_t digest = 0;  // of names, shapes, types and bytes of the file's tensors

    // Whether any product is of halves, see half_matmul.hpp.
    [[nodiscard]] bool on_tensor_units() const;
    // Then attention is, too, where heads can be.
    [[nodiscard]] bool attends_in_halves() const;
    [[nodiscard]] WeightMatrix head() const;  // the rank's rows of it
};

// Errors: those of reading the model; unsupported for blocks that are not Llama's, that with biases
// (Qwen 2) or with normed heads (Qwen 3), for heads that the kernels cannot hold, and for what so
// many cards cannot share. Throws BackendError where a card has no room. `progress`, which may be
// null, is told of the file's bytes on the way.
[[nodiscard]] Result<std::vector<DeviceModel>> upload_model(const model::GgufFile& file,
                                                            const std::vector<int>& cards,
                                                            model::LoadProgress* progress);

}  // namespace troupe::gpu
