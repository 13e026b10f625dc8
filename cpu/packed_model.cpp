#include "cpu/packed_model.hpp"

#include <algorithm>
#include <utility>

#include "cpu/weight_blocks.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::cpu {
namespace {

using model::Matrix;

WeightType packed_type(const Matrix& matrix, Arithmetic arithmetic) {
    return arithmetic == Arithmetic::float32 ? WeightType::f32 : packable_type(matrix);
}

constexpr std::size_t kPanelsPerPiece = 32;

}  // namespace

// Lays out all matrices first, then packs them, in pieces of some panels, on all threads.
class Packer {
 public:
    // `norms` keeps what add_norm() and add_layer() give views of.
    Packer(Arithmetic arithmetic, std::deque<std::vector<float>>& norms)
        : arithmetic_(arithmetic), norms_(norms) {}

    void add_layer(const model::LayerWeights& from, PackedLayer& to);

    [[nodiscard]] std::span<const float> add_norm(const Matrix& matrix) {
        if (matrix.rows == 0) return {};
        std::vector<float>& values = norms_.emplace_back(matrix.columns);
        model::dequantise(matrix.type, matrix.bytes, values);
        return values;
    }

    // `target` gets shape and format now and its memory in pack().
    void add(PackedMatrix& target, const Matrix& matrix) {
        add(target, {&matrix}, packed_type(matrix, arithmetic_));
    }
    // Matrices with the same input, each on top of the next: neighbours of one type are one
    // product.
    void add(std::vector<PackedMatrix>& targets, std::initializer_list<const Matrix*> parts) {
        targets.reserve(parts.size());  // pack() will want them where they are now
        for (auto part = parts.begin(); part != parts.end();) {
            const WeightType type = packed_type(**part, arithmetic_);
            const auto end = std::find_if(part, parts.end(), [&](const Matrix* next) {
                return packed_type(*next, arithmetic_) != type;
            });
            add(targets.emplace_back(), {part, end}, type);
            part = end;
        }
    }

    // `tell(share)` hears what part of all was packed, from any of the threads.
    template <class Tell>
    [[nodiscard]] Result<AlignedBuffer> pack(ComputeThreads& threads, Tell tell) {
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
                        tell(share_of(pieces_[piece]));
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
        WeightType type = WeightType::f32;
    };
    struct Piece {
        std::size_t matrix = 0;
        std::size_t panel_begin = 0;
        std::size_t panel_end = 0;
    };

    void add(PackedMatrix& target, std::vector<const Matrix*> parts, WeightType type) {
        target.format = native_panel_format(type);
        target.columns = parts.front()->columns;
        for (const Matrix* part : parts)
            target.rows += part->rows;
        for (std::size_t begin = 0; begin < target.panels(); begin += kPanelsPerPiece) {
            pieces_.push_back(
                {matrices_.size(), begin, std::min(begin + kPanelsPerPiece, target.panels())});
        }
        bytes_ += packed_bytes(target.format, target.rows, target.columns);
        matrices_.push_back({&target, std::move(parts), type});
    }

    [[nodiscard]] double share_of(const Piece& piece) const {
        const std::size_t bytes =
            (piece.panel_end - piece.panel_begin) * matrices_[piece.matrix].target->panel_bytes();
        return static_cast<double>(bytes) / static_cast<double>(bytes_);
    }

    [[nodiscard]] Result<> pack_piece(const Piece& piece) const {
        const Job& job = matrices_[piece.matrix];
        const bool direct = std::all_of(job.parts.begin(), job.parts.end(), [&](const Matrix* p) {
            return is_packable_as_it_is(p->type, job.type) && p->order == model::RowOrder{};
        });
        if (!direct) return pack_rewritten(piece);
        std::vector<RawMatrix> raw;
        for (const Matrix* part : job.parts)
            raw.push_back({job.type, part->rows, part->columns, part->bytes.data()});
        return pack_panels(raw, piece.panel_begin, piece.panel_end, *job.target);
    }

    // The rows of these panels as the type to pack first.
    [[nodiscard]] Result<> pack_rewritten(const Piece& piece) const {
        const Job& job = matrices_[piece.matrix];
        const std::size_t columns = job.target->columns;
        const std::size_t row_bytes = raw_row_bytes(job.type, columns);
        const std::size_t row_begin = piece.panel_begin * panel_rows;
        const std::size_t row_end = std::min(piece.panel_end * panel_rows, job.target->rows);
        std::vector<std::byte> rows((row_end - row_begin) * row_bytes);
        std::size_t first = 0;  // row of the stack at which this part begins
        for (const Matrix* part : job.parts) {
            const std::size_t begin = std::max(row_begin, first);
            const std::size_t end = std::min<std::size_t>(row_end, first + part->rows);
            for (std::size_t row = begin; row < end; ++row) {
                rewrite_row(*part, row - first, job.type,
                            rows.data() + (row - row_begin) * row_bytes);
            }
            first += part->rows;
        }
        const RawMatrix raw{job.type, row_end - row_begin, columns, rows.data()};
        const PackedMatrix target{job.target->format, raw.rows, columns,
                                  job.target->data + piece.panel_begin * job.target->panel_bytes()};
        return pack_panels({&raw, 1}, 0, piece.panel_end - piece.panel_begin, target);
    }

    Arithmetic arithmetic_;
    std::deque<std::vector<float>>& norms_;
    std::vector<Job> matrices_;
    std::vector<Piece> pieces_;
    std::size_t bytes_ = 0;
};

void Packer::add_layer(const model::LayerWeights& from, PackedLayer& to) {
    const auto vector = [&](const std::vector<float>& values) -> std::span<const float> {
        return values.empty() ? std::span<const float>() : norms_.emplace_back(values);
    };
    // Norms are copied: the file does not promise their alignment.
    to.attention_norm = add_norm(from.attn_norm);
    to.attention_post_norm = add_norm(from.attn_post_norm);
    to.ffn_norm = add_norm(from.ffn_norm);
    to.ffn_post_norm = add_norm(from.ffn_post_norm);
    to.qkv_bias = vector(from.attn_qkv_bias);
    to.q_norm = vector(from.attn_q_norm);
    to.k_norm = vector(from.attn_k_norm);
    add(to.qkv, {&from.attn_q, &from.attn_k, &from.attn_v});
    add(to.attention_output, from.attn_output);
    // Gate and up read the same activations, and are half of all weights.
    if (from.experts.empty()) {
        to.gate.outlier_ratio = to.up.outlier_ratio = coarse_outlier_ratio;
        add(to.gate, from.ffn_gate);
        add(to.up, from.ffn_up);
        add(to.down, from.ffn_down);
        return;
    }
    add(to.router, from.router);
    to.experts.resize(from.experts.size());
    for (std::size_t i = 0; i < from.experts.size(); ++i) {
        PackedExpert& expert = to.experts[i];
        expert.gate.outlier_ratio = expert.up.outlier_ratio = coarse_outlier_ratio;
        add(expert.gate, from.experts[i].gate);
        add(expert.up, from.experts[i].up);
        add(expert.down, from.experts[i].down);
    }
}

Result<PackedModel> PackedModel::pack(const model::GgufFile& file, Arithmetic arithmetic,
                                      ComputeThreads& threads, model::LoadProgress* progress) {
    PackedModel packed;
    Result<model::Hyperparameters> hp = model::read_hyperparameters(file);
    if (!hp) return hp.error();
    Result<model::ModelWeights> weights = model::read_weights(file, *hp);
    if (!weights) return weights.error();
    packed.hp_ = std::move(*hp);
    packed.token_embd_ = weights->token_embd;
    packed.rope_factors_ = std::move(weights->rope_factors);
    packed.rope_factors_long_ = std::move(weights->rope_factors_long);

    Packer packer(arithmetic, packed.norms_);
    packed.layers_.resize(weights->layers.size());
    for (std::size_t i = 0; i < weights->layers.size(); ++i)
        packer.add_layer(weights->layers[i], packed.layers_[i]);
    packed.output_norm_ = packer.add_norm(weights->output_norm);
    packer.add(packed.output_, weights->output);
    Result<AlignedBuffer> buffer = packer.pack(threads, [&](double share) {
        if (progress == nullptr) return;
        progress->add(static_cast<std::uint64_t>(share * static_cast<double>(file.size_bytes())));
    });
    if (!buffer) return buffer.error();
    packed.buffer_ = std::move(*buffer);
    return packed;
}

std::span<const float> PackedModel::rope_factors(std::uint32_t context_length) const {
    const bool is_long = context_length > hp_.rope_scale.original_context;
    return is_long && !rope_factors_long_.empty() ? rope_factors_long_ : rope_factors_;
}

void PackedModel::embed(model::TokenId token, std::span<float> out) const {
    TROUPE_ASSERT(token >= 0 && static_cast<std::uint32_t>(token) < token_embd_.rows);
    model::dequantise(token_embd_.type, token_embd_.row(static_cast<std::size_t>(token)), out);
}

}  // namespace troupe::cpu
