// Which element type each tensor of a model gets where `troupe convert` makes a file of another
// type. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "model/gguf.hpp"
#include "model/tensor_types.hpp"

namespace troupe::model {

struct QuantisationRecipe {
    std::string_view name;              // what people call such files, in small letters
    TensorType type = TensorType::f32;  // of most matrices
    std::uint32_t file_type = 0;        // "general.file_type": llama.cpp's number for them
    bool spends_more = false;           // on the matrices that TypeChooser says
};

inline constexpr std::array kQuantisationRecipes{
    QuantisationRecipe{"f32", TensorType::f32, 0},
    QuantisationRecipe{"f16", TensorType::f16, 1},
    QuantisationRecipe{"bf16", TensorType::bf16, 32},
    QuantisationRecipe{"q8_0", TensorType::q8_0, 7},
    QuantisationRecipe{"q6_k", TensorType::q6_k, 18},
    QuantisationRecipe{"q5_k_m", TensorType::q5_k, 17, true},
    QuantisationRecipe{"q5_k", TensorType::q5_k, 16},
    QuantisationRecipe{"q5_1", TensorType::q5_1, 9},
    QuantisationRecipe{"q5_0", TensorType::q5_0, 8},
    QuantisationRecipe{"q4_k_m", TensorType::q4_k, 15, true},
    QuantisationRecipe{"q4_k", TensorType::q4_k, 14},
    QuantisationRecipe{"q4_1", TensorType::q4_1, 3},
    QuantisationRecipe{"q4_0", TensorType::q4_0, 2},
};

// Null for a name that no recipe has.
[[nodiscard]] const QuantisationRecipe* find_quantisation_recipe(std::string_view name);

struct ChosenType {
    TensorType type = TensorType::f32;
    TensorType wanted = TensorType::f32;  // another one where rows are not whole blocks of it

    bool operator==(const ChosenType&) const = default;
};

// What tensors become. Vectors and routers become float32; what cannot become float32 stays.
// A recipe that spends more makes these Q6_K: the output head, which may be the embeddings, and
// attn_v (or attn_qkv) and ffn_down of the first eighth of the layers, of the last eighth, and of
// every third one between. Rows that are no multiple of 256 make Q4_K Q5_0, Q5_K Q5_1 and Q6_K
// Q8_0; rows that are none of 32 make any of them F16.
// Source of these rules: llama.cpp, src/llama-quant.cpp, whose exceptions for Falcon, for 70B and
// for eight experts are not here.
class TypeChooser {
 public:
    // `recipe` must outlive this.
    TypeChooser(const QuantisationRecipe& recipe, const GgufFile& file);

    [[nodiscard]] ChosenType choose(const GgufTensor& tensor) const;

 private:
    [[nodiscard]] bool gets_more(std::string_view name) const;

    const QuantisationRecipe& recipe_;
    std::uint32_t layers_ = 0;
    bool has_head_ = false;
};

}  // namespace troupe::model
