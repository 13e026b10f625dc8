// What config.json becomes in GGUF's terms, what is refused, and the names of tensors.
#include <catch2/catch.hpp>
#include <cmath>

#include "model/hf_config.hpp"
#include "model/hf_tensors.hpp"
#include "model/hyperparameters.hpp"

namespace troupe::model {
namespace {

// A whole config.json of this type; `more` ends in a comma or is empty, and goes first.
std::string config(std::string_view type, std::string_view more = "") {
    return "{" + std::string(more) + R"("model_type":")" + std::string(type) +
           R"(","hidden_size":64,"intermediate_size":128,"num_hidden_layers":4,
              "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":1024,
              "vocab_size":100,"sliding_window":null,"head_dim":16})";
}

std::string refusal(const std::string& json) {
    GgufBuilder out;
    const auto shape = read_hf_config(json, out);
    return shape ? "(accepted)" : shape.error().message;
}

Hyperparameters read(const std::string& json) {
    GgufBuilder out;
    REQUIRE(read_hf_config(json, out).has_value());
    const auto h = read_hyperparameters(out.file());
    if (!h) FAIL(h.error().message);
    return *h;
}

}  // namespace

TEST_CASE("A config.json of transformers 4 has its rope and its defaults outside",
          "[model][hf_config]") {
    const auto h = read(config("llama", R"("rope_theta":500000,"rms_norm_eps":1e-05,)"));
    CHECK(h.architecture == "llama");
    CHECK(h.rope_freq_base == 500'000.0F);
    CHECK(h.rms_epsilon == 1e-5F);
    CHECK(h.head_count_kv == 2);
    CHECK(h.head_length == 16);
    CHECK(h.vocabulary_size == 100);
    CHECK(h.rope_scale.kind == RopeScaling::none);
    const auto linear = read(config("llama", R"("rope_scaling":{"type":"linear","factor":2.0},)"));
    CHECK(linear.rope_scale.kind == RopeScaling::linear);
    CHECK(linear.rope_scale.factor == 2.0F);
    CHECK(linear.rope_freq_base == 10'000.0F);
}

// Checked against transformers' _compute_llama3_parameters by hand.
TEST_CASE("Llama 3.1's scaling becomes factors of frequencies", "[model][hf_config]") {
    GgufBuilder out;
    const auto json = config("llama", R"("rope_theta":500000.0,"rope_scaling":{"factor":8.0,
        "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192,
        "rope_type":"llama3"},)");
    REQUIRE(read_hf_config(json, out).has_value());
    const GgufTensor* tensor = out.file().find_tensor("rope_freqs.weight");
    REQUIRE(tensor != nullptr);
    REQUIRE(tensor->dims[0] == 8);
    std::vector<float> factors(8);
    dequantise(tensor->type, tensor->bytes, factors);
    CHECK(factors[0] == 1.0F);  // a wave of 2 pi tokens
    CHECK(factors[4] > 1.0F);   // 4443 tokens: between 2048 and 8192
    CHECK(factors[4] < 8.0F);
    CHECK(factors[5] == 8.0F);
    const double share = (8192 / (2 * M_PI * std::pow(500'000.0, 0.5)) - 1) / 3;
    CHECK(factors[4] == Approx(1 / ((1 - share) / 8 + share)));
}

TEST_CASE("Windows are taken where all layers have them", "[model][hf_config]") {
    const auto window = [](const std::string& json) { return read(json).layers.at(3).window; };
    const std::string sliding = R"("sliding_window":32,)";
    CHECK(window(config("mistral", sliding)) == 32);
    CHECK(window(config("mistral")) == 0);
    CHECK(window(config("qwen2", sliding)) == 0);
    CHECK(window(config("qwen2", sliding + R"("use_sliding_window":false,)")) == 0);
    const std::string used = sliding + R"("use_sliding_window":true,)";
    CHECK(window(config("qwen2", used + R"("max_window_layers":0,)")) == 32);
    CHECK(window(config("qwen2", used + R"("max_window_layers":4,)")) == 0);
    CHECK(refusal(config("qwen2", used + R"("max_window_layers":2,)")) ==
          "config.json: a window in some of the layers is not supported");
}

TEST_CASE("What a config.json wants and the program has not is refused by name",
          "[model][hf_config]") {
    CHECK(refusal("{") != "(accepted)");
    CHECK(refusal("{}") ==
          "config.json: model_type \"\" is not supported; these are: llama, mistral, mixtral, "
          "qwen2, qwen3, qwen3_moe, gemma2, gemma3_text, phi3, smollm3, olmo2");
    CHECK(refusal(R"({"model_type":"llama"})") == "config.json: \"num_hidden_layers\" is missing");
    CHECK(refusal(config("llama", R"("vocab_size":-5,)")) ==
          "config.json: \"vocab_size\" is no count");
    CHECK(refusal(config("llama", R"("rms_norm_eps":"x",)")) ==
          "config.json: \"rms_norm_eps\" is no number");
    CHECK(refusal(config("llama", R"("hidden_act":"relu",)")) ==
          "config.json: \"hidden_act\": \"relu\" is not supported");
    CHECK(refusal(config("llama", R"("rope_scaling":{"type":"dynamic"},)")) ==
          "config.json: rope of type \"dynamic\" is not supported");
    CHECK(refusal(config("llama", R"("partial_rotary_factor":0.5,)")) ==
          "config.json: \"partial_rotary_factor\" of this model type is not supported");
    CHECK(refusal(config("qwen3_moe", R"("num_experts":4,"num_experts_per_tok":2,)"
                                      R"("moe_intermediate_size":32,)")) ==
          "config.json: \"norm_topk_prob\": false is not supported");
    CHECK(refusal(config("smollm3", R"("no_rope_layers":[1,1,0,1],)")) ==
          "config.json: no_rope_layers[2] is not supported");
    CHECK(refusal(config("gemma2", R"("hidden_act":"gelu_pytorch_tanh","sliding_window":9,)"
                                   R"("layer_types":["full_attention"],)")) ==
          "config.json: layer_types[0] is not supported");
    CHECK(refusal(config("llama", R"("quantization_config":{"quant_method":"fp8"},)")) ==
          "config.json: quant_method \"fp8\" (gptq and awq are) is not supported");
    CHECK(refusal(config("llama", R"("quantization_config":{"quant_method":"gptq","bits":3},)")) ==
          "config.json: a number of bits other than 4 is not supported");
}

TEST_CASE("Tensors get their names in a GGUF", "[model][hf_config]") {
    const auto name = [](std::string_view hf) { return gguf_tensor_name(hf, "llama"); };
    CHECK(name("model.embed_tokens.weight") == "token_embd.weight");
    CHECK(name("lm_head.weight") == "output.weight");
    CHECK(name("model.layers.12.self_attn.q_proj.bias") == "blk.12.attn_q.bias");
    CHECK(name("model.layers.0.post_attention_layernorm.weight") == "blk.0.ffn_norm.weight");
    CHECK(name("model.layers.3.block_sparse_moe.experts.7.w3.weight") == "blk.3.ffn_up.7.weight");
    CHECK(name("model.layers.3.mlp.experts.10.down_proj.weight") == "blk.3.ffn_down.10.weight");
    CHECK(gguf_tensor_name("model.layers.0.post_attention_layernorm.weight", "gemma2") ==
          "blk.0.post_attention_norm.weight");
    for (const char* unknown : {"x", "model.layers.mlp.up_proj.weight", "model.layers.",
                                "model.layers.1.mlp.experts.up_proj.weight",
                                "model.layers.0.self_attn.rotary_emb.inv_freq"})
        CHECK(name(unknown) == unknown);
}

}  // namespace troupe::model
