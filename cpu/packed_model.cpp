#include "cpu/packed_model.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

using model::Matrix;
using model::TensorType;

// The types that the packer reads by itself; others are expanded to float32 first.
std::optional<WeightType> packed_type(TensorType type) {
    switch (type) {
        case TensorType::f32:
            return WeightType::f32;
        case TensorType::f16:
            return WeightType::f16;
        case TensorType::bf16:
            return WeightType::bf16;
        case TensorType::q4_0:
            return WeightType::q4_0;
        case TensorType::q4_1:
            return WeightType::q4_1;
        case TensorType::q8_0:
            return WeightType::q8_0;
        default:
            return std::nullopt;
    }
}

PanelFormat panel_format(TensorType type, Arithmetic arithmetic) {
    const std::optional<WeightType> packed = packed_type(type);
    if (arithmetic == Arithmetic::float32 || !packed) return PanelFormat::f32;
    return native_panel_format(*packed);
}

// The format in which matrices can share panels: their own where it is the same, else float32.
PanelFormat common_format(std::span<const Matrix* const> parts, Arithmetic arithmetic) {
    const PanelFormat first = panel_format(parts.front()->type, arithmetic);
    const bool same = std::all_of(parts.begin(), parts.end(), [&](const Matrix* part) {
        return panel_format(part->type, arithmetic) == first;
    });
    return same ? first : PanelFormat::f32;
}

constexpr std::size_t kPanelsPerPiece = 32;

}  // namespace

// Lays out all matrices first, then packs them, in pieces of some panels, on all threads.
class Packer {
 public:
    explicit Packer(Arithmetic arithmetic) : arithmetic_(arithmetic) {}

    // `target` gets shape and format now and its memory in pack().
    void add(PackedMatrix& target, std::vector<const Matrix*> parts) {
        const PanelFormat format = common_format(parts, arithmetic_);
        add(target, std::move(parts), format);
    }
    void add(PackedMatrix& target, std::vector<const Matrix*> parts, PanelFormat format) {
        target.format = format;
        target.columns = parts.front()->columns;
        for (const Matrix* part : parts)
            target.rows += part->rows;
        for (std::size_t begin = 0; begin < target.panels(); begin += kPanelsPerPiece) {
            pieces_.push_back(
                {matrices_.size(), begin, std::min(begin + kPanelsPerPiece, target.panels())});
        }
        bytes_ += packed_bytes(target.format, target.rows, target.columns);
        matrices_.push_back({&target, std::move(parts)});
    }

    [[nodiscard]] Result<AlignedBuffer> pack(ComputeThreads& threads) {
        Result<AlignedBuffer> buffer = AlignedBuffer::allocate(bytes_);
        if (!buffer) return buffer.error();
        std::byte* at = buffer->data();
        for (const Job& job : matrices_) {
            job.target->data = at;
            at += packed_bytes(job.target->format, job.target->rows, job.target->columns);
        }
        std::vector<Result<>> packed(pieces_.size());
        threads.run(static_cast<std::uint32_t>(pieces_.size()),
                    [&](std::uint32_t piece, std::uint32_t) {
                        packed[piece] = pack_piece(pieces_[piece]);
                    });
        for (const Result<>& result : packed) {
            if (!result) return result.error();
        }
        return buffer;
    }

 private:
    struct Job {
        PackedMatrix* target = nullptr;
        std::vector<const Matrix*> parts;
    };
    struct Piece {
        std::size_t matrix = 0;
        std::size_t panel_begin = 0;
        std::size_t panel_end = 0;
    };

    [[nodiscard]] Result<> pack_piece(const Piece& piece) const {
        const Job& job = matrices_[piece.matrix];
        const bool direct = std::all_of(job.parts.begin(), job.parts.end(), [](const Matrix* part) {
            return packed_type(part->type).has_value();
        });
        if (!direct) return pack_expanded(piece);
        std::vector<RawMatrix> raw;
        for (const Matrix* part : job.parts) {
            raw.push_back(
                {*packed_type(part->type), part->rows, part->columns, part->bytes.data()});
        }
        return pack_panels(raw, piece.panel_begin, piece.panel_end, *job.target);
    }

    // For types that the packer does not know: the rows of these panels as float32 first.
    [[nodiscard]] Result<> pack_expanded(const Piece& piece) const {
        const Job& job = matrices_[piece.matrix];
        const std::size_t columns = job.target->columns;
        const std::size_t row_begin = piece.panel_begin * panel_rows;
        const std::size_t row_end = std::min(piece.panel_end * panel_rows, job.target->rows);
        std::vector<float> rows((row_end - row_begin) * columns);
        std::size_t first = 0;  // row of the stack at which this part begins
        for (const Matrix* part : job.parts) {
            const std::size_t begin = std::max(row_begin, first);
            const std::size_t end = std::min<std::size_t>(row_end, first + part->rows);
            for (std::size_t row = begin; row < end; ++row) {
                model::dequantise(part->type, part->row(row - first),
                                  std::span(rows).subspan((row - row_begin) * columns, columns));
            }
            first += part->rows;
        }
        const RawMatrix raw{WeightType::f32, row_end - row_begin, columns,
                            reinterpret_cast<const std::byte*>(rows.data())};
        const PackedMatrix target{job.target->format, raw.rows, columns,
                                  job.target->data + piece.panel_begin * job.target->panel_bytes()};
        return pack_panels({&raw, 1}, 0, piece.panel_end - piece.panel_begin, target);
    }

    Arithmetic arithmetic_;
    std::vector<Job> matrices_;
    std::vector<Piece> pieces_;
    std::size_t bytes_ = 0;
};

Result<PackedModel> PackedModel::pack(const model::GgufFile& file, Arithmetic arithmetic,
                                      ComputeThreads& threads) {
    PackedModel packed;
    Result<model::Hyperparameters> hp = model::read_hyperparameters(file);
    if (!hp) return hp.error();
    Result<model::LlamaWeights> weights = model::read_llama_weights(file, *hp);
    if (!weights) return weights.error();
    packed.hp_ = std::move(*hp);
    packed.token_embd_ = weights->token_embd;

    // Norms are copied: the file does not promise their alignment.
    packed.norms_.reserve(2 * weights->layers.size() + 1);
    const auto norm = [&](const Matrix& matrix) -> std::span<const float> {
        std::vector<float>& values = packed.norms_.emplace_back(matrix.columns);
        model::dequantise(matrix.type, matrix.bytes, values);
        return values;
    };
    Packer packer(arithmetic);
    packed.layers_.resize(weights->layers.size());
    for (std::size_t i = 0; i < weights->layers.size(); ++i) {
        const model::LlamaLayer& from = weights->layers[i];
        PackedLayer& to = packed.layers_[i];
        to.attention_norm = norm(from.attn_norm);
        to.ffn_norm = norm(from.ffn_norm);
        packer.add(to.qkv, {&from.attn_q, &from.attn_k, &from.attn_v});
        packer.add(to.attention_output, {&from.attn_output});
        // Gate and up read the same activations, and are half of all weights.
        to.gate.outlier_ratio = to.up.outlier_ratio = coarse_outlier_ratio;
        const std::array<const Matrix*, 2> gate_up{&from.ffn_gate, &from.ffn_up};
        const PanelFormat format = common_format(gate_up, arithmetic);
        packer.add(to.gate, {&from.ffn_gate}, format);
        packer.add(to.up, {&from.ffn_up}, format);
        packer.add(to.down, {&from.ffn_down});
    }
    packed.output_norm_ = norm(weights->output_norm);
    packer.add(packed.output_, {&weights->output});
    Result<AlignedBuffer> buffer = packer.pack(threads);
    if (!buffer) return buffer.error();
    packed.buffer_ = std::move(*buffer);
    return packed;
}

void PackedModel::embed(model::TokenId token, std::span<float> out) const {
    TROUPE_ASSERT(token >= 0 && static_cast<std::uint32_t>(token) < token_embd_.rows);
    model::dequantise(token_embd_.type, token_embd_.row(static_cast<std::size_t>(token)), out);
}

}  // namespace troupe::cpu
