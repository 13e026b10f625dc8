// Which tensors get which type.
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "model/gguf_builder.hpp"
#include "model/quantisation_recipe.hpp"

namespace troupe::model {
namespace {

GgufFile model_of(std::uint32_t layers, bool has_head) {
    GgufBuilder out;
    out.set_string("general.architecture", "llama");
    out.set_u32("llama.block_count", layers);
    GgufTensor head{.name = "output.weight", .dim_count = 2, .bytes = {}, .order = {}};
    if (has_head) REQUIRE(out.add_tensor(head).has_value());
    return out.finish();
}

ChosenType chosen(std::string_view recipe, std::string_view name, std::uint64_t row_length,
                  const GgufFile& file, std::uint32_t dim_count = 2) {
    GgufTensor tensor{.name = name, .dim_count = dim_count, .bytes = {}, .order = {}};
    tensor.dims[0] = row_length;
    return TypeChooser(*find_quantisation_recipe(recipe), file).choose(tensor);
}

}  // namespace

TEST_CASE("Rows that are not whole blocks get the next type that fits", "[model][quantise]") {
    const GgufFile file = model_of(1, true);
    using enum TensorType;
    const auto type_of = [&](std::string_view recipe, std::uint64_t row_length) {
        return chosen(recipe, "blk.0.attn_q.weight", row_length, file);
    };
    CHECK(type_of("q4_k", 512) == ChosenType{q4_k, q4_k});
    CHECK(type_of("q4_k", 576) == ChosenType{q5_0, q4_k});
    CHECK(type_of("q5_k", 576) == ChosenType{q5_1, q5_k});
    CHECK(type_of("q6_k", 576) == ChosenType{q8_0, q6_k});
    CHECK(type_of("q6_k", 48) == ChosenType{f16, q6_k});
    CHECK(type_of("q4_0", 48) == ChosenType{f16, q4_0});
    CHECK(type_of("f32", 5) == ChosenType{f32, f32});
    CHECK(chosen("q4_k", "blk.0.attn_norm.weight", 512, file, 1) == ChosenType{f32, f32});
    CHECK(chosen("q4_k", "blk.0.ffn_gate_inp.weight", 512, file) == ChosenType{f32, f32});
    CHECK(find_quantisation_recipe("q4_k_s") == nullptr);
}

TEST_CASE("Mixed recipes spend Q6_K on the head and on every third layer and the outermost",
          "[model][quantise]") {
    const GgufFile file = model_of(32, true);
    std::set<std::uint32_t> more;
    for (std::uint32_t layer = 0; layer < 32; ++layer) {
        for (const auto& [recipe, plain] :
             {std::pair("q4_k_m", TensorType::q4_k), std::pair("q5_k_m", TensorType::q5_k)}) {
            const auto type_of = [&](const std::string& part) {
                const auto name = "blk." + std::to_string(layer) + part + ".weight";
                return chosen(recipe, name, 256, file).type;
            };
            CHECK(type_of(".attn_q") == plain);
            CHECK(type_of(".ffn_up") == plain);
            const TensorType down = type_of(".ffn_down");
            if (down == TensorType::q6_k) more.insert(layer);
            CHECK((down == TensorType::q6_k || down == plain));
            for (const char* part : {".attn_v", ".attn_qkv", ".ffn_down_exps", ".ffn_down.3"})
                CHECK(type_of(part) == down);
        }
    }
    CHECK(more ==
          std::set<std::uint32_t>{0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31});
    CHECK(chosen("q4_k_m", "output.weight", 256, file).type == TensorType::q6_k);
    CHECK(chosen("q4_k_m", "token_embd.weight", 256, file).type == TensorType::q4_k);
    CHECK(chosen("q4_k", "output.weight", 256, file).type == TensorType::q4_k);
    const GgufFile tied = model_of(32, false);
    CHECK(chosen("q5_k_m", "token_embd.weight", 256, tied).type == TensorType::q6_k);
    CHECK(chosen("q5_k_m", "token_embd.weight", 576, tied) ==
          ChosenType{TensorType::q8_0, TensorType::q6_k});
}

}  // namespace troupe::model
