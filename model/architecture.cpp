#include "model/architecture.hpp"

#include <fmt/format.h>

#include <array>

namespace troupe::model {
namespace {

constexpr std::array kArchitectures{&kLlama,  &kQwen2, &kQwen3,   &kQwen3Moe, &kGemma2,
                                    &kGemma3, &kPhi3,  &kSmolLm3, &kOlmo2};

std::string tensor_name(std::uint32_t index, std::string_view part) {
    return fmt::format("blk.{}.{}.weight", index, part);
}

// Rows [begin, begin + count) as a matrix of their own.
Matrix rows_of(const Matrix& matrix, std::uint32_t begin, std::uint32_t count) {
    if (matrix.rows == 0) return {};  // it was missing
    Matrix part = matrix;
    part.rows = count;
    part.bytes = matrix.bytes.subspan(begin * matrix.row_bytes(), count * matrix.row_bytes());
    return part;
}

void append_bias(TensorReader& tensors, std::uint32_t index, std::string_view part,
                 std::uint32_t length, RowOrder order, std::vector<float>& out) {
    const std::string name = fmt::format("blk.{}.{}.bias", index, part);
    std::vector<float> bias(length);
    if (tensors.has(name)) bias = tensors.vector(name, length, order);
    out.insert(out.end(), bias.begin(), bias.end());
}

void read_experts(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h,
                  LayerWeights& out) {
    const std::uint32_t width = h.embedding_length, inner = h.expert_feed_forward_length;
    out.router = tensors.matrix(tensor_name(index, "ffn_gate_inp"), h.expert_count, width);
    if (tensors.has(tensor_name(index, "ffn_gate.0"))) {
        for (std::uint32_t i = 0; i < h.expert_count; ++i) {
            const auto one = [&](std::string_view part, std::uint32_t rows, std::uint32_t columns) {
                return tensors.matrix(tensor_name(index, fmt::format("{}.{}", part, i)), rows,
                                      columns);
            };
            out.experts.push_back({one("ffn_gate", inner, width), one("ffn_up", inner, width),
                                   one("ffn_down", width, inner)});
        }
        return;
    }
    const auto stack = [&](std::string_view part, std::uint32_t rows, std::uint32_t columns) {
        return tensors.stack(tensor_name(index, part), h.expert_count, rows, columns);
    };
    const Matrix gate = stack("ffn_gate_exps", inner, width);
    const Matrix up = stack("ffn_up_exps", inner, width);
    const Matrix down = stack("ffn_down_exps", width, inner);
    for (std::uint32_t i = 0; i < h.expert_count; ++i) {
        out.experts.push_back({rows_of(gate, i * inner, inner), rows_of(up, i * inner, inner),
                               rows_of(down, i * width, width)});
    }
}

}  // namespace

const Architecture* find_architecture(std::string_view name) {
    for (const Architecture* architecture : kArchitectures) {
        if (architecture->name == name) return architecture;
    }
    return nullptr;
}

std::string known_architectures() {
    std::string names;
    for (const Architecture* architecture : kArchitectures)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", architecture->name);
    return names;
}

void read_attention(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h,
                    LayerWeights& out) {
    const auto name = [&](std::string_view part) { return tensor_name(index, part); };
    const std::uint32_t q = h.query_length(), kv = h.kv_length(), width = h.embedding_length;
    if (h.norms_inputs) out.attn_norm = tensors.norm(name("attn_norm"), width);
    const bool fused = h.has_fused_matrices && tensors.has(name("attn_qkv"));
    if (fused) {
        const Matrix all = tensors.matrix(name("attn_qkv"), q + 2 * kv, width);
        out.attn_q = rows_of(all, 0, q);
        out.attn_k = rows_of(all, q, kv);
        out.attn_v = rows_of(all, q + kv, kv);
    } else {
        out.attn_q = tensors.matrix(name("attn_q"), q, width);
        out.attn_k = tensors.matrix(name("attn_k"), kv, width);
        out.attn_v = tensors.matrix(name("attn_v"), kv, width);
    }
    const RowOrder order = row_order(h);
    if (!order.is_identity()) out.attn_q.order = out.attn_k.order = order;
    if (tensors.has(fmt::format("blk.{}.attn_q.bias", index))) {
        append_bias(tensors, index, "attn_q", q, order, out.attn_qkv_bias);
        append_bias(tensors, index, "attn_k", kv, order, out.attn_qkv_bias);
        append_bias(tensors, index, "attn_v", kv, {}, out.attn_qkv_bias);
    }
    out.attn_output = tensors.matrix(name("attn_output"), width, q);
}

void read_qk_norms(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h,
                   LayerWeights& out) {
    const bool per_head = h.qk_norm_is_per_head;
    const RowOrder order = row_order(h);
    out.attn_q_norm = tensors.vector(tensor_name(index, "attn_q_norm"),
                                     per_head ? h.head_length : h.query_length(), order);
    out.attn_k_norm = tensors.vector(tensor_name(index, "attn_k_norm"),
                                     per_head ? h.head_length : h.kv_length(), order);
}

void read_feed_forward(TensorReader& tensors, std::uint32_t index, const Hyperparameters& h,
                       LayerWeights& out) {
    const auto name = [&](std::string_view part) { return tensor_name(index, part); };
    const std::uint32_t width = h.embedding_length, inner = h.feed_forward_length;
    if (h.norms_inputs) out.ffn_norm = tensors.norm(name("ffn_norm"), width);
    if (h.expert_count != 0) return read_experts(tensors, index, h, out);
    if (h.has_fused_matrices && !tensors.has(name("ffn_gate"))) {
        const Matrix both = tensors.matrix(name("ffn_up"), 2 * inner, width);
        out.ffn_gate = rows_of(both, 0, inner);
        out.ffn_up = rows_of(both, inner, inner);
    } else {
        out.ffn_gate = tensors.matrix(name("ffn_gate"), inner, width);
        out.ffn_up = tensors.matrix(name("ffn_up"), inner, width);
    }
    out.ffn_down = tensors.matrix(name("ffn_down"), width, inner);
}

void read_expert_keys(KeyReader& keys, std::uint32_t feed_forward_length, Hyperparameters& out) {
    out.expert_count = keys.count("expert_count", kExpertsMax);
    if (keys.error()) return;
    out.expert_used_count = keys.count("expert_used_count", out.expert_count);
    out.expert_feed_forward_length = feed_forward_length;
}

}  // namespace troupe::model
