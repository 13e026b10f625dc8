#include "model/quantisation_recipe.hpp"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

namespace troupe::model {
namespace {

TensorType next_best(TensorType type) {
    switch (type) {
        case TensorType::q4_k:
            return TensorType::q5_0;
        case TensorType::q5_k:
            return TensorType::q5_1;
        case TensorType::q6_k:
            return TensorType::q8_0;
        default:
            return TensorType::f16;
    }
}

bool fits(const GgufTensor& tensor, TensorType type) {
    return tensor.dims[0] % tensor_type_info(type).block_size == 0;
}

bool is_sensitive_layer(std::uint32_t layer, std::uint32_t layers) {
    const std::uint32_t eighth = layers / 8;
    return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

}  // namespace

const QuantisationRecipe* find_quantisation_recipe(std::string_view name) {
    const auto found =
        std::find_if(kQuantisationRecipes.begin(), kQuantisationRecipes.end(),
                     [&](const QuantisationRecipe& recipe) { return recipe.name == name; });
    return found == kQuantisationRecipes.end() ? nullptr : &*found;
}

TypeChooser::TypeChooser(const QuantisationRecipe& recipe, const GgufFile& file)
    : recipe_(recipe), has_head_(file.find_tensor("output.weight") != nullptr) {
    const auto architecture = file.find_string("general.architecture");
    if (!architecture || !*architecture) return;
    const auto layers = file.find_u32(std::string(**architecture) + ".block_count");
    if (layers) layers_ = layers->value_or(0);
}

bool TypeChooser::gets_more(std::string_view name) const {
    if (name == (has_head_ ? "output.weight" : "token_embd.weight")) return true;
    if (!name.starts_with("blk.")) return false;
    name.remove_prefix(4);
    std::uint32_t layer = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    if (error != std::errc() || !is_sensitive_layer(layer, layers_)) return false;
    name.remove_prefix(static_cast<std::size_t>(end - name.data()));
    return name.starts_with(".attn_v.") || name.starts_with(".attn_qkv.") ||
           name.starts_with(".ffn_down.") || name.starts_with(".ffn_down_exps.");
}

ChosenType TypeChooser::choose(const GgufTensor& tensor) const {
    if (!tensor_type_info(tensor.type).dequantises) return {tensor.type, tensor.type};
    const bool is_router = tensor.name.find("ffn_gate_inp.") != tensor.name.npos;
    if (tensor.dim_count < 2 || is_router) return {TensorType::f32, TensorType::f32};
    const bool more = recipe_.spends_more && gets_more(tensor.name);
    ChosenType out;
    out.type = out.wanted = more ? TensorType::q6_k : recipe_.type;
    while (!fits(tensor, out.type))
        out.type = next_best(out.type);
    return out;
}

}  // namespace troupe::model
