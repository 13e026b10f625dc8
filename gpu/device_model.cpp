#include "gpu/device_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "gpu/kernels/attention.hpp"
#include "model/hash_bytes.hpp"
#include "model/tensor_types.hpp"

namespace troupe::gpu {
namespace {

using model::Matrix;
using model::TensorType;

std::optional<WeightType> weight_type(TensorType type) {
    switch (type) {
        case TensorType::f32:
            return WeightType::f32;
        case TensorType::f16:
            return WeightType::f16;
        case TensorType::bf16:
            return WeightType::bf16;
        case TensorType::q8_0:
            return WeightType::q8_0;
        case TensorType::q4_0:
            return WeightType::q4_0;
        case TensorType::q4_1:
            return WeightType::q4_1;
        default:
            return std::nullopt;
    }
}

// Tensor units multiply halves, and some of bfloat16's numbers are too large for one.
bool fits_halves(const Matrix& matrix) {
    if (matrix.type != TensorType::bf16) return true;
    constexpr std::uint16_t kTooLarge = 0x4780;  // 65,536
    for (std::size_t at = 0; at < matrix.bytes.size(); at += sizeof(std::uint16_t)) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, matrix.bytes.data() + at, sizeof bits);
        if ((bits & 0x7FFF) >= kTooLarge) return false;
    }
    return true;
}

WeightType common_type(std::span<const Matrix* const> parts) {
    const std::optional<WeightType> first = weight_type(parts.front()->type);
    const bool kept = std::all_of(parts.begin(), parts.end(), [&](const Matrix* part) {
        return part->type == parts.front()->type && fits_halves(*part);
    });
    return first && kept ? *first : WeightType::f32;
}

// GGML keeps element i of a group of 32 in the low nibble of byte i, element 16 + i in the high
// one; kernels want neighbours in neighbouring nibbles.
void repack_nibbles(const std::byte* from, std::byte* to) {
    const auto nibble = [from](std::size_t i) {
        return i < 16 ? from[i] & std::byte{15} : from[i - 16] >> 4;
    };
    for (std::size_t i = 0; i < kGroupColumns / 2; ++i)
        to[i] = nibble(2 * i) | nibble(2 * i + 1) << 4;
}

// One row of a matrix of a block-quantised type: the scales come first in each block.
void repack_blocks(WeightType type, std::span<const std::byte> row, std::byte* data,
                   std::uint16_t* scales) {
    const std::size_t scale_bytes = 2 * scales_per_group(type);
    const std::size_t quant_bytes = load_bytes(type) * kGroupColumns / kLoadColumns;
    for (std::size_t at = 0; at < row.size(); at += scale_bytes + quant_bytes) {
        std::memcpy(scales, row.data() + at, scale_bytes);
        scales += scales_per_group(type);
        if (type == WeightType::q8_0) {
            std::memcpy(data, row.data() + at + scale_bytes, quant_bytes);
        } else {
            repack_nibbles(row.data() + at + scale_bytes, data);
        }
        data += quant_bytes;
    }
}

void repack_row(WeightType type, const Matrix& matrix, std::size_t row, std::byte* data,
                std::uint16_t* scales) {
    const std::span<const std::byte> bytes = matrix.row(row);
    if (scales_per_group(type) > 0) {
        repack_blocks(type, bytes, data, scales);
    } else if (weight_type(matrix.type) == type) {
        std::memcpy(data, bytes.data(), bytes.size());
    } else {
        std::vector<float> values(matrix.columns);
        model::dequantise(matrix.type, bytes, values);
        std::memcpy(data, values.data(), values.size() * sizeof(float));
    }
}

DeviceBuffer<float> upload_norm(const Matrix& norm) {
    std::vector<float> values(norm.columns);
    model::dequantise(norm.type, norm.bytes, values);
    return DeviceBuffer<float>::upload(values);
}

std::uint64_t digest_of(const model::GgufFile& file) {
    std::uint64_t digest = 0;
    for (const model::GgufTensor& tensor : file.tensors()) {
        digest = model::mix64(digest ^ model::hash_bytes(tensor.name));
        digest = model::mix64(digest ^ static_cast<std::uint64_t>(tensor.type));
        for (const std::uint64_t dim : tensor.dims)
            digest = model::mix64(digest ^ dim);
        digest ^= model::hash_bytes(
            {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
    }
    return digest;
}

Result<> check_heads(const model::Hyperparameters& hp) {
    if (hp.head_length <= kHeadLengthMax && hp.heads_per_kv() <= kHeadsPerKvMax) return {};
    return Error{ErrorKind::unsupported,
                 fmt::format("the CUDA backend has no kernel for heads of {} elements, {} of them "
                             "to a key: at most {} and {}; use --backend cpu",
                             hp.head_length, hp.heads_per_kv(), kHeadLengthMax, kHeadsPerKvMax)};
}

}  // namespace

MatrixBuffer upload_matrix(std::span<const Matrix* const> parts) {
    MatrixBuffer buffer;
    WeightMatrix& view = buffer.view;
    view.type = common_type(parts);
    view.columns = padded_columns(parts.front()->columns);
    for (const Matrix* part : parts)
        view.rows += part->rows;
    const std::size_t row_bytes = view.columns / kLoadColumns * load_bytes(view.type);
    const std::size_t row_scales = view.columns / kGroupColumns * scales_per_group(view.type);
    std::vector<std::byte> data(view.rows * row_bytes);
    std::vector<std::uint16_t> scales(view.rows * row_scales);
    std::size_t at = 0;
    for (const Matrix* part : parts) {
        for (std::size_t row = 0; row < part->rows; ++row, ++at) {
            repack_row(view.type, *part, row, data.data() + at * row_bytes,
                       scales.data() + at * row_scales);
        }
    }
    buffer.data = DeviceBuffer<std::byte>::upload(data);
    view.data = buffer.data.data();
    if (!scales.empty()) buffer.scales = DeviceBuffer<std::uint16_t>::upload(scales);
    view.scales = buffer.scales.data();
    return buffer;
}

bool DeviceModel::on_tensor_units() const {
    const auto halves = [](const WeightMatrix& matrix) { return matrix.type != WeightType::f32; };
    return halves(head()) || std::ranges::any_of(layers, [&](const DeviceLayer& layer) {
               return halves(layer.qkv.view) || halves(layer.attention_output.view) ||
                      halves(layer.gate_up.view) || halves(layer.down.view);
           });
}

Result<DeviceModel> upload_model(const model::GgufFile& file) {
    DeviceModel device;
    Result<model::Hyperparameters> hp = model::read_hyperparameters(file);
    if (!hp) return hp.error();
    if (Result<> heads = check_heads(*hp); !heads) return heads.error();
    Result<model::ModelWeights> weights = model::read_weights(file, *hp);
    if (!weights) return weights.error();
    if (!is_plain_llama(*hp) || !weights->is_plain()) {
        return Error{ErrorKind::unsupported,
                     fmt::format("the CUDA backend has no kernels for what architecture \"{}\" "
                                 "adds to Llama's; use --backend cpu",
                                 hp->architecture)};
    }
    device.hp = std::move(*hp);
    device.digest = digest_of(file);
    const auto upload = [&](std::initializer_list<const Matrix*> parts) {
        MatrixBuffer buffer = upload_matrix({parts.begin(), parts.size()});
        device.weight_bytes += buffer.data.bytes() + buffer.scales.bytes();
        return buffer;
    };
    device.token_embd = upload({&weights->token_embd});
    for (const model::LayerWeights& from : weights->layers) {
        DeviceLayer& to = device.layers.emplace_back();
        to.attention_norm = upload_norm(from.attn_norm);
        to.qkv = upload({&from.attn_q, &from.attn_k, &from.attn_v});
        to.attention_output = upload({&from.attn_output});
        to.ffn_norm = upload_norm(from.ffn_norm);
        to.gate_up = upload({&from.ffn_gate, &from.ffn_up});
        to.down = upload({&from.ffn_down});
    }
    device.output_norm = upload_norm(weights->output_norm);
    if (!weights->tied_output) device.output = upload({&weights->output});
    return device;
}

}  // namespace troupe::gpu
