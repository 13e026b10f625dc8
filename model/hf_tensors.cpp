#include "model/hf_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/hf_int4.hpp"
#include "model/tensor_types.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

using Names = std::pair<std::string_view, std::string_view>;

// Of a layer; the norms' are below.
constexpr std::array<Names, 13> kParts{{
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.gate", "ffn_gate_inp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
}};
constexpr std::array<Names, 6> kExpertParts{{
    {"gate_proj", "ffn_gate"},
    {"up_proj", "ffn_up"},
    {"down_proj", "ffn_down"},
    {"w1", "ffn_gate"},
    {"w3", "ffn_up"},
    {"w2", "ffn_down"},
}};
constexpr std::array<Names, 2> kNorms{{
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
}};
// Where branches are normed after they are computed, too.
constexpr std::array<Names, 4> kPostNorms{{
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
}};
constexpr std::array<Names, 3> kOutside{{
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
}};

std::string_view find_name(std::span<const Names> names, std::string_view name) {
    const auto found = std::find_if(names.begin(), names.end(),
                                    [&](const Names& pair) { return pair.first == name; });
    return found == names.end() ? std::string_view() : found->second;
}

// Takes "12." off the front; empty where there is no such thing.
std::string_view take_number(std::string_view& name) {
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    const std::string_view number = name.substr(0, digits);
    if (number.empty() || !name.substr(digits).starts_with('.')) return {};
    name.remove_prefix(digits + 1);
    return number;
}

// A layer's part by its name without number and suffix: "mlp.experts.3.up_proj" is "ffn_up.3".
std::string part_name(std::string_view part, std::string_view architecture) {
    const bool post = architecture.starts_with("gemma") || architecture == "olmo2";
    const std::span<const Names> norms =
        post ? std::span<const Names>(kPostNorms) : std::span<const Names>(kNorms);
    if (const auto name = find_name(norms, part); !name.empty()) return std::string(name);
    if (const auto name = find_name(kParts, part); !name.empty()) return std::string(name);
    for (const std::string_view prefix : {"mlp.experts.", "block_sparse_moe.experts."}) {
        if (!part.starts_with(prefix)) continue;
        std::string_view rest = part.substr(prefix.size());
        const std::string_view expert = take_number(rest);
        const std::string_view name = find_name(kExpertParts, rest);
        if (!expert.empty() && !name.empty()) return fmt::format("{}.{}", name, expert);
    }
    return {};
}

// Adds all tensors of one folder.
class Adder {
 public:
    Adder(const HfModelShape& shape, GgufBuilder& out) : shape_(shape), out_(out) {}

    [[nodiscard]] Result<> add(const SafeTensor& tensor);
    [[nodiscard]] Result<> add_int4(const std::string& name, const Int4Matrix& matrix);

 private:
    [[nodiscard]] Result<RowOrder> order_of(std::string_view name, std::uint64_t rows) const;
    [[nodiscard]] Result<> add_vector(std::string_view name, const SafeTensor& tensor);

    const HfModelShape& shape_;
    GgufBuilder& out_;
};

// Errors: rows that are not whole heads.
Result<RowOrder> Adder::order_of(std::string_view name, std::uint64_t rows) const {
    const bool rotated = name.find(".attn_q.") != name.npos || name.find(".attn_k.") != name.npos;
    if (!rotated || shape_.qk_order.is_identity()) return RowOrder{};
    if (rows % shape_.qk_order.head_length != 0) {
        return invalid_input(fmt::format("tensor \"{}\": {} rows are not whole heads of {}",
                                         log::escaped(name), rows, shape_.qk_order.head_length));
    }
    return shape_.qk_order;
}

// As float32, in GGUF's order.
Result<> Adder::add_vector(std::string_view name, const SafeTensor& tensor) {
    const std::uint64_t length = tensor.shape[0];
    const auto order = order_of(name, length);
    if (!order) return order.error();
    std::vector<float> stored(length), numbers(length);
    dequantise(tensor.type, tensor.bytes, stored);
    const float offset = name.find("norm.") != name.npos ? shape_.norm_offset : 0.0F;
    for (std::uint64_t i = 0; i < length; ++i)
        numbers[i] = stored[(*order)(static_cast<std::uint32_t>(i))] + offset;
    const auto bytes = std::as_bytes(std::span(numbers));
    GgufTensor made{.name = name, .dim_count = 1, .bytes = {}, .order = {}};
    made.dims[0] = length;
    made.bytes = out_.keep(std::vector(bytes.begin(), bytes.end()));
    return out_.add_tensor(made);
}

Result<> Adder::add(const SafeTensor& tensor) {
    const std::string name = gguf_tensor_name(tensor.name, shape_.architecture);
    if (name == "output.weight" && shape_.ties_output) return {};
    if (tensor.shape.size() > kGgufDimsMax) {
        return Error{ErrorKind::unsupported,
                     fmt::format("tensor \"{}\": {} dimensions are more than {}",
                                 log::escaped(tensor.name), tensor.shape.size(), kGgufDimsMax)};
    }
    if (tensor.shape.size() == 1 && tensor_type_info(tensor.type).dequantises)
        return add_vector(name, tensor);
    const auto order = order_of(name, tensor.shape.empty() ? 1 : tensor.shape[0]);
    if (!order) return order.error();
    GgufTensor made{.name = name,
                    .type = tensor.type,
                    .dim_count = static_cast<std::uint32_t>(tensor.shape.size()),
                    .bytes = tensor.bytes,
                    .order = *order};
    std::copy(tensor.shape.rbegin(), tensor.shape.rend(), made.dims.begin());
    return out_.add_tensor(made);
}

Result<> Adder::add_int4(const std::string& name, const Int4Matrix& matrix) {
    auto blocks = unpack_int4(matrix, shape_.quantisation);
    if (!blocks) return blocks.error();
    const auto order = order_of(name, blocks->rows);
    if (!order) return order.error();
    GgufTensor made{.name = name,
                    .type = blocks->type,
                    .dim_count = 2,
                    .bytes = out_.keep(std::move(blocks->bytes)),
                    .order = *order};
    made.dims[0] = blocks->columns;
    made.dims[1] = blocks->rows;
    return out_.add_tensor(made);
}

}  // namespace

std::string gguf_tensor_name(std::string_view name, std::string_view architecture) {
    const std::size_t dot = name.rfind('.');
    if (dot == name.npos) return std::string(name);
    const std::string_view suffix = name.substr(dot);
    std::string_view part = name.substr(0, dot);
    if (const auto outside = find_name(kOutside, part); !outside.empty())
        return fmt::format("{}{}", outside, suffix);
    constexpr std::string_view layers = "model.layers.";
    if (!part.starts_with(layers)) return std::string(name);
    part.remove_prefix(layers.size());
    const std::string_view index = take_number(part);
    const std::string made = part_name(part, architecture);
    if (index.empty() || made.empty()) return std::string(name);
    return fmt::format("blk.{}.{}{}", index, made, suffix);
}

Result<> add_hf_tensors(std::span<const SafeTensor> tensors, const HfModelShape& shape,
                        GgufBuilder& out) {
    Adder adder(shape, out);
    // The parts of 4-bit matrices by the name that the matrix would have; in the files' order.
    std::vector<std::pair<std::string, Int4Matrix>> packed;
    std::unordered_map<std::string, std::size_t> packed_by_name;
    for (const SafeTensor& tensor : tensors) {
        const SafeTensor* Int4Matrix::*part =
            shape.quantisation.method == HfQuantisation::Method::none ? nullptr
                                                                      : int4_part(tensor.name);
        if (part == nullptr) {
            if (auto added = adder.add(tensor); !added) return added;
            continue;
        }
        std::string name = tensor.name.substr(0, tensor.name.rfind('.')) + ".weight";
        const auto [at, is_new] = packed_by_name.emplace(name, packed.size());
        if (is_new) packed.emplace_back(std::move(name), Int4Matrix{});
        packed[at->second].second.*part = &tensor;
    }
    for (const auto& [name, matrix] : packed) {
        auto added = adder.add_int4(gguf_tensor_name(name, shape.architecture), matrix);
        if (!added) {
            return Error{added.error().kind, fmt::format("tensor \"{}\": {}", log::escaped(name),
                                                         added.error().message)};
        }
    }
    return {};
}

}  // namespace troupe::model
