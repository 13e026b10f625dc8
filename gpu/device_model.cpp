#include "gpu/device_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "gpu/cards.hpp"
#include "gpu/kernels/attention.hpp"
#include "model/half.hpp"
#include "model/hash_bytes.hpp"
#include "model/superblocks.hpp"
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
        case TensorType::q4_k:
            return WeightType::q4_k;
        case TensorType::q5_k:
            return WeightType::q5_k;
        case TensorType::q6_k:
            return WeightType::q6_k;
        default:
            return std::nullopt;
    }
}

// Tensor units multiply halves, and some numbers are too large for one: those of halves are not,
// and those of types that are kept, other than bfloat16, are taken for weights of a model.
bool fits_halves(const Matrix& matrix) {
    constexpr float kTooLarge = 65'504;
    std::vector<float> values(matrix.columns);
    for (std::size_t row = 0; row < matrix.rows; ++row) {
        model::dequantise(matrix.type, matrix.row(row), values);
        const auto too_large = [](float value) { return !(std::abs(value) <= kTooLarge); };
        if (std::any_of(values.begin(), values.end(), too_large)) return false;
    }
    return true;
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

// Where a row goes; all of it is zeros before.
struct PackedRow {
    std::uint32_t columns;
    std::byte* data;
    std::uint16_t* scales;
    std::byte* high;
};

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

model::Superblock read_superblock(WeightType type, const std::byte* block) {
    return type == WeightType::q4_k   ? model::read_q4_k(block)
           : type == WeightType::q5_k ? model::read_q5_k(block)
                                      : model::read_q6_k(block);
}

// One row of a matrix of a K type.
void repack_superblocks(WeightType type, std::span<const std::byte> row, PackedRow to) {
    const std::size_t superblocks = to.columns / model::kSuperblock;
    const std::size_t block_bytes = row.size() / superblocks;
    const unsigned high_bits = type == WeightType::q6_k ? 2 : 1;
    for (std::size_t s = 0; s < superblocks; ++s) {
        const model::Superblock block = read_superblock(type, row.data() + s * block_bytes);
        to.scales[0] = block.d;
        to.scales[1] = block.minimum;
        for (std::size_t g = 0; g < 8; ++g) {
            const bool halved = block.group == 16;
            const auto low = static_cast<std::uint8_t>(block.scales[halved ? 2 * g : g]);
            const auto high =
                static_cast<std::uint8_t>(halved ? block.scales[2 * g + 1] : block.minima[g]);
            to.scales[2 + g] = static_cast<std::uint16_t>(low | high << 8);
        }
        for (std::size_t j = 0; j < model::kSuperblock; ++j) {
            const int number = block.quants[j] + (type == WeightType::q6_k ? 32 : 0);
            to.data[j / 2] |= static_cast<std::byte>((number & 15) << (j % 2 * 4));
            if (high_bytes(type) == 0) continue;
            const std::size_t bit = j * high_bits;
            to.high[bit / 8] |= static_cast<std::byte>((number >> 4) << (bit % 8));
        }
        to.scales += kSuperblockScales;
        to.data += model::kSuperblock / 2;
        to.high += model::kSuperblock / kGroupColumns * high_bytes(type);
    }
}

void repack_row(WeightType type, const Matrix& matrix, std::size_t row, const PackedRow& to) {
    const std::span<const std::byte> bytes = matrix.row(row);
    std::byte* const data = to.data;
    if (is_k_type(type)) {
        repack_superblocks(type, bytes, to);
    } else if (scales_per_group(type) > 0) {
        repack_blocks(type, bytes, data, to.scales);
    } else if (weight_type(matrix.type) == type) {
        std::memcpy(data, bytes.data(), bytes.size());
    } else {
        std::vector<float> values(matrix.columns);
        model::dequantise(matrix.type, bytes, values);
        if (type == WeightType::f32) {
            std::memcpy(data, values.data(), values.size() * sizeof(float));
            return;
        }
        std::vector<std::uint16_t> halves;
        for (const float value : values)
            halves.push_back(model::float_to_half(value));
        std::memcpy(data, halves.data(), halves.size() * sizeof halves[0]);
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

// Whether the block is Llama's, apart from what is known beside: pairs that lie in halves, which
// rows are reordered for when they are read, and norms of each query and key.
bool has_known_block(model::Hyperparameters hp) {
    hp.rope_order = model::RopeOrder::pairs;
    if (hp.graph == model::BlockGraph::qwen3 && hp.qk_norm_is_per_head)
        hp.graph = model::BlockGraph::llama;
    return is_plain_llama(hp);
}

WeightMatrix rows_of(const WeightMatrix& matrix, std::uint32_t begin, std::uint32_t count) {
    WeightMatrix rows = matrix;
    const std::size_t data = begin * (matrix.columns / kLoadColumns * load_bytes(matrix.type));
    const std::size_t high = begin * (matrix.columns / kGroupColumns * high_bytes(matrix.type));
    rows.rows = count;
    rows.data = static_cast<const std::byte*>(matrix.data) + data;
    rows.scales = matrix.scales + begin * scales_of_row(matrix.type, matrix.columns);
    rows.high = static_cast<const std::byte*>(matrix.high) + high;
    return rows;
}

// Uploads matrix by matrix, of each every rank's share: what type it becomes is asked once.
class Uploader {
 public:
    using Parts = std::initializer_list<const Matrix*>;

    Uploader(const std::vector<int>& cards, std::vector<DeviceModel>& devices,
             model::LoadProgress* progress)
        : cards_(cards), devices_(devices), progress_(progress) {}

    void matrix(Parts parts, Split split, MatrixBuffer DeviceModel::*to) {
        upload(parts, split, [to](DeviceModel& device) { return &(device.*to); });
    }
    void layer(std::size_t index, const model::LayerWeights& from,
               const model::Hyperparameters& hp) {
        for_each_rank([&](DeviceModel& device) {
            DeviceLayer& to = device.layers[index];
            to.attention_norm = upload_norm(from.attn_norm);
            to.qkv_bias =
                DeviceBuffer<float>::upload(share_of_biases(from.attn_qkv_bias, hp, device.rank));
            to.q_norm = DeviceBuffer<float>::upload(from.attn_q_norm);
            to.k_norm = DeviceBuffer<float>::upload(from.attn_k_norm);
            to.ffn_norm = upload_norm(from.ffn_norm);
        });
        const auto matrix = [&](Parts parts, Split split, MatrixBuffer DeviceLayer::*to) {
            upload(parts, split, [=](DeviceModel& device) { return &(device.layers[index].*to); });
        };
        matrix({&from.attn_q, &from.attn_k, &from.attn_v}, Split::rows, &DeviceLayer::qkv);
        matrix({&from.attn_output}, Split::columns, &DeviceLayer::attention_output);
        matrix({&from.ffn_gate, &from.ffn_up}, Split::rows, &DeviceLayer::gate_up);
        matrix({&from.ffn_down}, Split::columns, &DeviceLayer::down);
    }
    template <class Act>
    void for_each_rank(Act act) {
        for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
            select_card(cards_[rank]);
            act(devices_[rank]);
        }
    }

 private:
    // `place` says where in a rank's model.
    template <class Place>
    void upload(Parts parts, Split split, Place place) {
        const WeightType type = common_type({parts.begin(), parts.size()});
        for_each_rank([&](DeviceModel& device) {
            std::vector<MatrixShare> shares;
            for (const Matrix* part : parts)
                shares.push_back(share_of(*part, split, device.rank));
            std::vector<const Matrix*> matrices;
            for (const MatrixShare& share : shares)
                matrices.push_back(&share.matrix);
            *place(device) = upload_matrix(matrices, type);
            device.weight_bytes += place(device)->bytes();
        });
        if (progress_ == nullptr) return;
        for (const Matrix* part : parts)
            progress_->add(part->bytes.size());
    }

    const std::vector<int>& cards_;
    std::vector<DeviceModel>& devices_;  // [ranks]
    model::LoadProgress* const progress_;
};

}  // namespace

WeightType common_type(std::span<const Matrix* const> parts) {
    const TensorType first = parts.front()->type;
    const bool same = std::all_of(parts.begin(), parts.end(),
                                  [&](const Matrix* part) { return part->type == first; });
    const std::optional<WeightType> own = same ? weight_type(first) : std::nullopt;
    if (own && own != WeightType::bf16) return *own;
    const bool fit = std::all_of(parts.begin(), parts.end(),
                                 [](const Matrix* part) { return fits_halves(*part); });
    return !fit ? WeightType::f32 : own ? *own : WeightType::f16;
}

MatrixBuffer upload_matrix(std::span<const Matrix* const> parts, WeightType type) {
    MatrixBuffer buffer;
    WeightMatrix& view = buffer.view;
    view.type = type;
    view.columns = padded_columns(parts.front()->columns);
    for (const Matrix* part : parts)
        view.rows += part->rows;
    const std::size_t row_bytes = view.columns / kLoadColumns * load_bytes(view.type);
    const std::size_t row_scales = scales_of_row(view.type, view.columns);
    const std::size_t row_high = view.columns / kGroupColumns * high_bytes(view.type);
    std::vector<std::byte> data(view.rows * row_bytes);
    std::vector<std::uint16_t> scales(view.rows * row_scales);
    std::vector<std::byte> high(view.rows * row_high);
    std::size_t at = 0;
    for (const Matrix* part : parts) {
        for (std::size_t row = 0; row < part->rows; ++row, ++at) {
            repack_row(view.type, *part, row,
                       {view.columns, data.data() + at * row_bytes, scales.data() + at * row_scales,
                        high.data() + at * row_high});
        }
    }
    buffer.data = DeviceBuffer<std::byte>::upload(data);
    view.data = buffer.data.data();
    if (!scales.empty()) buffer.scales = DeviceBuffer<std::uint16_t>::upload(scales);
    view.scales = buffer.scales.data();
    buffer.high = DeviceBuffer<std::byte>::upload(high);
    view.high = buffer.high.data();
    return buffer;
}

bool DeviceModel::on_tensor_units() const {
    const auto halves = [](const WeightMatrix& matrix) { return matrix.type != WeightType::f32; };
    return halves(head()) || std::ranges::any_of(layers, [&](const DeviceLayer& layer) {
               return halves(layer.qkv.view) || halves(layer.attention_output.view) ||
                      halves(layer.gate_up.view) || halves(layer.down.view);
           });
}

bool DeviceModel::attends_in_halves() const {
    return on_tensor_units() && hp.head_length % 8 == 0;
}

WeightMatrix DeviceModel::head() const {
    if (output.view.data != nullptr) return output.view;
    const Share rows = share_of(token_embd.view.rows, rank);
    return rows_of(token_embd.view, rows.begin, rows.count);
}

Result<std::vector<DeviceModel>> upload_model(const model::GgufFile& file,
                                              const std::vector<int>& cards,
                                              model::LoadProgress* progress) {
    Result<model::Hyperparameters> hp = model::read_hyperparameters(file);
    if (!hp) return hp.error();
    if (Result<> heads = check_heads(*hp); !heads) return heads.error();
    Result<model::ModelWeights> weights = model::read_weights(file, *hp);
    if (!weights) return weights.error();
    if (!has_known_block(*hp) || !weights->rope_factors.empty()) {
        return Error{ErrorKind::unsupported,
                     fmt::format("the CUDA backend has no kernels for what this model of "
                                 "architecture \"{}\" adds to Llama's; use --backend cpu",
                                 hp->architecture)};
    }
    const auto ranks = static_cast<std::uint32_t>(cards.size());
    if (Result<> divides = check_divisible(*hp, *weights, ranks); !divides) return divides.error();
    const std::uint64_t digest = digest_of(file);
    std::vector<DeviceModel> devices(ranks);
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        devices[rank].rank = {rank, ranks};
        devices[rank].hp = share_of(*hp, {rank, ranks});
        devices[rank].layers.resize(hp->block_count);
        devices[rank].digest = digest;
    }
    Uploader uploader(cards, devices, progress);
    uploader.matrix({&weights->token_embd}, Split::whole, &DeviceModel::token_embd);
    for (std::size_t i = 0; i < weights->layers.size(); ++i)
        uploader.layer(i, weights->layers[i], *hp);
    uploader.for_each_rank(
        [&](DeviceModel& device) { device.output_norm = upload_norm(weights->output_norm); });
    if (!weights->tied_output)
        uploader.matrix({&weights->output}, Split::rows, &DeviceModel::output);
    return devices;
}

}  // namespace troupe::gpu
