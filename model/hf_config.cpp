#include "model/hf_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "model/hf_json.hpp"
#include "model/math.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

using Element = simdjson::dom::element;

constexpr std::string_view kSilu = "silu";
constexpr std::string_view kGelu = "gelu_pytorch_tanh";

// Writes one config.json; what differs between models are the functions of kModels below.
class KeyWriter {
 public:
    KeyWriter(HfJson& config, GgufBuilder& out, HfModelShape& shape)
        : config_(config), out_(out), shape_(shape) {}

    void write_common();
    void write_rope(HfJson rope);
    void require_activation(std::string_view wanted);
    // All layers look at the window, or none.
    void write_window(bool used);
    // Layers that look at the window and those that see all must stand as architectures have them.
    void require_layer_types(std::uint32_t period);
    void write_experts(std::string_view count_field);
    void interleave_halves() { shape_.qk_order = {head_length_, head_length_}; }

    [[nodiscard]] HfJson& config() { return config_; }
    [[nodiscard]] HfModelShape& shape() { return shape_; }
    [[nodiscard]] std::uint32_t head_length() const { return head_length_; }
    [[nodiscard]] std::uint32_t layers() const { return layers_; }
    [[nodiscard]] HfJson rope() {
        return config_.object(config_.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
    }
    void set_u32(std::string_view name, std::uint32_t value) { out_.set_u32(key(name), value); }
    void set_f32(std::string_view name, float value) { out_.set_f32(key(name), value); }

 private:
    [[nodiscard]] std::string key(std::string_view name) const {
        return fmt::format("{}.{}", shape_.architecture, name);
    }
    void write_yarn(HfJson& rope);
    void write_llama3(HfJson& rope, float base);
    void write_long_factors(HfJson& rope);
    void add_vector(std::string_view name, std::span<const float> numbers);

    HfJson& config_;
    GgufBuilder& out_;
    HfModelShape& shape_;
    std::uint32_t head_length_ = 0;
    std::uint32_t layers_ = 0;
    std::uint32_t context_ = 0;
};

void KeyWriter::write_common() {
    layers_ = config_.count("num_hidden_layers");
    context_ = config_.count("max_position_embeddings");
    const std::uint32_t width = config_.count("hidden_size");
    const std::uint32_t heads = std::max(1U, config_.count("num_attention_heads"));
    head_length_ = config_.find_u32("head_dim").value_or(width / heads);
    set_u32("block_count", layers_);
    set_u32("context_length", context_);
    set_u32("embedding_length", width);
    set_u32("feed_forward_length", config_.count("intermediate_size"));
    set_u32("attention.head_count", heads);
    set_u32("attention.head_count_kv", config_.find_u32("num_key_value_heads").value_or(heads));
    set_u32("attention.key_length", head_length_);
    set_u32("attention.value_length", head_length_);
    set_u32("vocab_size", config_.count("vocab_size"));
    set_f32("attention.layer_norm_rms_epsilon", config_.find_f32("rms_norm_eps").value_or(1e-6F));
}

void KeyWriter::require_activation(std::string_view wanted) {
    auto found = config_.find_text("hidden_activation");
    if (!found) found = config_.find_text("hidden_act");
    if (found && *found != wanted)
        config_.refuse(fmt::format("\"hidden_act\": \"{}\"", log::escaped(*found, 40)));
}

void KeyWriter::write_window(bool used) {
    const std::uint32_t window = config_.find_u32("sliding_window").value_or(0);
    if (!used || window == 0) return;
    std::size_t sliding = 0, all = 0;
    simdjson::dom::array types;
    if (config_["layer_types"].get(types) == simdjson::SUCCESS) {
        for (const Element type : types) {
            std::string_view name;
            ++all;
            if (type.get(name) == simdjson::SUCCESS && name == "sliding_attention") ++sliding;
        }
    } else if (const auto first = config_.find_u32("max_window_layers")) {
        all = layers_;
        sliding = layers_ - std::min(*first, layers_);
    }
    if (all != 0 && sliding == 0) return;
    if (sliding != all) return config_.refuse("a window in some of the layers");
    set_u32("attention.sliding_window", window);
}

void KeyWriter::require_layer_types(std::uint32_t period) {
    simdjson::dom::array types;
    if (config_["layer_types"].get(types) != simdjson::SUCCESS) return;
    std::uint32_t index = 0;
    for (const Element type : types) {
        std::string_view name;
        const bool sees_all = index++ % period == period - 1;
        if (type.get(name) == simdjson::SUCCESS &&
            name == (sees_all ? "full_attention" : "sliding_attention"))
            continue;
        return config_.refuse(fmt::format("layer_types[{}]", index - 1));
    }
}

void KeyWriter::write_experts(std::string_view count_field) {
    const bool has = config_.has(count_field);
    set_u32("expert_count", config_.count(has ? count_field : "num_local_experts"));
    set_u32("expert_used_count", config_.count("num_experts_per_tok"));
}

// Formulas: src/transformers/modeling_rope_utils.py.
void KeyWriter::write_rope(HfJson rope) {
    auto base = rope.find_f32("rope_theta");
    if (!base) base = config_.find_f32("rope_theta");
    set_f32("rope.freq_base", base.value_or(10'000.0F));
    auto part = rope.find_f32("partial_rotary_factor");
    if (!part) part = config_.find_f32("partial_rotary_factor");
    const auto rotated =
        static_cast<std::uint32_t>(static_cast<float>(head_length_) * part.value_or(1.0F));
    set_u32("rope.dimension_count", rotated);
    if (rotated != head_length_ && !shape_.qk_order.is_identity())
        config_.refuse("\"partial_rotary_factor\" of this model type");

    auto kind = rope.find_text("rope_type");
    if (!kind) kind = rope.find_text("type");
    if (!kind || *kind == "default") return;
    if (*kind == "linear") {
        out_.set_string(key("rope.scaling.type"), "linear");
        set_f32("rope.scaling.factor", rope.find_f32("factor").value_or(1.0F));
    } else if (*kind == "yarn") {
        write_yarn(rope);
    } else if (*kind == "llama3") {
        write_llama3(rope, base.value_or(10'000.0F));
    } else if (*kind == "longrope" || *kind == "su") {
        write_long_factors(rope);
    } else {
        config_.refuse(fmt::format("rope of type \"{}\"", log::escaped(*kind, 40)));
    }
}

void KeyWriter::write_yarn(HfJson& rope) {
    for (const char* field : {"mscale", "mscale_all_dim"})
        if (rope.has(field)) config_.refuse(fmt::format("\"{}\" of rope", field));
    if (!rope.find_flag("truncate").value_or(true)) config_.refuse("\"truncate\": false of rope");
    const float factor = rope.find_f32("factor").value_or(1.0F);
    out_.set_string(key("rope.scaling.type"), "yarn");
    set_f32("rope.scaling.factor", factor);
    set_u32("rope.scaling.original_context_length",
            rope.find_u32("original_max_position_embeddings").value_or(context_));
    if (const auto magnitude = rope.find_f32("attention_factor")) {
        const float usual = 1.0F + 0.1F * math::log(std::max(factor, 1.0F));
        set_f32("rope.scaling.attn_factor", *magnitude / usual);
    }
    if (const auto fast = rope.find_f32("beta_fast")) set_f32("rope.scaling.yarn_beta_fast", *fast);
    if (const auto slow = rope.find_f32("beta_slow")) set_f32("rope.scaling.yarn_beta_slow", *slow);
}

// Llama 3.1: low frequencies are scaled, high ones are not, those between in part.
void KeyWriter::write_llama3(HfJson& rope, float base) {
    const double factor = rope.find_f32("factor").value_or(8.0F);
    const double low = rope.find_f32("low_freq_factor").value_or(1.0F);
    const double high = rope.find_f32("high_freq_factor").value_or(4.0F);
    const double original = rope.find_u32("original_max_position_embeddings").value_or(8192);
    if (!(factor > 0) || !(high > low))
        return config_.refuse("rope whose factors are not in order");
    std::vector<float> factors;
    for (std::uint32_t i = 0; i < head_length_; i += 2) {
        const double share_of_head = i / static_cast<double>(head_length_);
        const double wave =
            2 * std::numbers::pi * math::exp(share_of_head * math::log(double{base}));
        const double share = std::clamp((original / wave - low) / (high - low), 0.0, 1.0);
        factors.push_back(static_cast<float>(1 / ((1 - share) / factor + share)));
    }
    add_vector("rope_freqs.weight", factors);
}

void KeyWriter::write_long_factors(HfJson& rope) {
    auto original = rope.find_u32("original_max_position_embeddings");
    if (!original) original = config_.find_u32("original_max_position_embeddings");
    if (!original || *original < 2 || *original >= context_) return;
    set_u32("rope.scaling.original_context_length", *original);
    const double scale = static_cast<double>(context_) / *original;
    const double usual = std::sqrt(1 + math::log(scale) / math::log(1.0 * *original));
    set_f32("rope.scaling.attn_factor",
            rope.find_f32("attention_factor").value_or(static_cast<float>(usual)));
    for (const char* name : {"short", "long"}) {
        std::vector<float> factors;
        simdjson::dom::array list;
        if (rope[fmt::format("{}_factor", name)].get(list) != simdjson::SUCCESS)
            return config_.fail(fmt::format("config.json: rope has no \"{}_factor\"", name));
        for (const Element one : list) {
            double number = 0;
            if (one.get(number) != simdjson::SUCCESS) number = 0;
            factors.push_back(static_cast<float>(number));
        }
        add_vector(fmt::format("rope_factors_{}.weight", name), factors);
    }
}

void KeyWriter::add_vector(std::string_view name, std::span<const float> numbers) {
    const auto bytes = std::as_bytes(numbers);
    GgufTensor tensor{.name = name, .dim_count = 1, .bytes = {}, .order = {}};
    tensor.dims[0] = numbers.size();
    tensor.bytes = out_.keep(std::vector(bytes.begin(), bytes.end()));
    if (const auto added = out_.add_tensor(tensor); !added) config_.fail(added.error().message);
}

// ---- One model type each
// -------------------------------------------------------------------------

void write_llama(KeyWriter& w) {
    w.interleave_halves();
    w.require_activation(kSilu);
    w.write_window(true);
    w.write_rope(w.rope());
}

void write_mixtral(KeyWriter& w) {
    write_llama(w);
    w.write_experts("num_local_experts");
}

void write_qwen(KeyWriter& w) {
    w.require_activation(kSilu);
    w.write_window(w.config().find_flag("use_sliding_window").value_or(false));
    w.write_rope(w.rope());
}

void write_qwen3_moe(KeyWriter& w) {
    write_qwen(w);
    w.write_experts("num_experts");
    w.set_u32("expert_feed_forward_length", w.config().count("moe_intermediate_size"));
    simdjson::dom::array dense;
    const bool all_sparse = w.config()["mlp_only_layers"].get(dense) != simdjson::SUCCESS ||
                            dense.begin() == dense.end();
    if (!all_sparse || w.config().find_u32("decoder_sparse_step").value_or(1) != 1)
        w.config().refuse("a mixture of experts in some of the layers");
    if (!w.config().find_flag("norm_topk_prob").value_or(false))
        w.config().refuse("\"norm_topk_prob\": false");
}

void write_gemma(KeyWriter& w) {
    w.require_activation(kGelu);
    w.shape().norm_offset = 1;
    w.set_u32("attention.sliding_window", w.config().count("sliding_window"));
    if (w.config().find_flag("use_bidirectional_attention").value_or(false))
        w.config().refuse("attention to what follows");
    const auto scalar = w.config().find_f32("query_pre_attn_scalar");
    if (scalar && *scalar > 0) w.set_f32("attention.scale", 1.0F / std::sqrt(*scalar));
}

void write_gemma2(KeyWriter& w) {
    write_gemma(w);
    w.require_layer_types(2);
    w.write_rope(w.rope());
    for (const char* field : {"attn_logit_softcapping", "final_logit_softcapping"}) {
        const auto cap = w.config().find_f32(field);
        if (!cap) return w.config().refuse(fmt::format("a model without \"{}\"", field));
        w.set_f32(field, *cap);
    }
}

void write_gemma3(KeyWriter& w) {
    write_gemma(w);
    w.require_layer_types(6);
    for (const char* field : {"attn_logit_softcapping", "final_logit_softcapping"})
        if (w.config().has(field)) w.config().refuse(fmt::format("\"{}\"", field));
    HfJson rope = w.rope();
    const bool nested = rope.has("full_attention");
    w.write_rope(nested ? rope.object("full_attention") : w.rope());
    auto local = rope.object("sliding_attention").find_f32("rope_theta");
    if (!local) local = w.config().find_f32("rope_local_base_freq");
    w.set_f32("rope.freq_base_swa", local.value_or(10'000.0F));
}

void write_phi3(KeyWriter& w) {
    w.require_activation(kSilu);
    w.write_window(true);
    w.write_rope(w.rope());
}

void write_smollm3(KeyWriter& w) {
    w.interleave_halves();
    w.require_activation(kSilu);
    w.write_rope(w.rope());
    if (w.config().find_flag("use_sliding_window").value_or(false))
        w.config().refuse("\"use_sliding_window\"");
    simdjson::dom::array rotates;
    if (w.config()["no_rope_layers"].get(rotates) != simdjson::SUCCESS) return;
    std::uint32_t index = 0;
    for (const Element one : rotates) {
        std::int64_t flag = 0;
        const bool rotated = index++ % 4 != 3;
        if (one.get(flag) != simdjson::SUCCESS || (flag != 0) != rotated)
            return w.config().refuse(fmt::format("no_rope_layers[{}]", index - 1));
    }
}

void write_olmo2(KeyWriter& w) {
    w.require_activation(kSilu);
    w.write_rope(w.rope());
}

struct ModelType {
    std::string_view name;  // "model_type"
    std::string_view architecture;
    void (*write)(KeyWriter&);
};

constexpr std::array kModels{
    ModelType{"llama", "llama", write_llama},
    ModelType{"mistral", "llama", write_llama},
    ModelType{"mixtral", "llama", write_mixtral},
    ModelType{"qwen2", "qwen2", write_qwen},
    ModelType{"qwen3", "qwen3", write_qwen},
    ModelType{"qwen3_moe", "qwen3moe", write_qwen3_moe},
    ModelType{"gemma2", "gemma2", write_gemma2},
    ModelType{"gemma3_text", "gemma3", write_gemma3},
    ModelType{"phi3", "phi3", write_phi3},
    ModelType{"smollm3", "smollm3", write_smollm3},
    ModelType{"olmo2", "olmo2", write_olmo2},
};

const ModelType* find_model_type(HfJson& config) {
    const std::string_view name = config.find_text("model_type").value_or("");
    std::string known;
    for (const ModelType& type : kModels) {
        if (type.name == name) return &type;
        known += fmt::format("{}{}", known.empty() ? "" : ", ", type.name);
    }
    config.fail(fmt::format("config.json: model_type \"{}\" is not supported; these are: {}",
                            log::escaped(name, 60), known),
                ErrorKind::unsupported);
    return nullptr;
}

HfQuantisation read_quantisation(HfJson& config) {
    HfQuantisation out;
    if (!config.has("quantization_config")) return out;
    HfJson inner = config.object("quantization_config");
    const std::string_view method = inner.find_text("quant_method").value_or("");
    if (method != "gptq" && method != "awq") {
        config.refuse(
            fmt::format("quant_method \"{}\" (gptq and awq are)", log::escaped(method, 40)));
    } else if (inner.find_u32("bits").value_or(4) != 4) {
        config.refuse("a number of bits other than 4");
    } else if (method == "awq" && inner.find_text("version").value_or("gemm") != "gemm" &&
               inner.find_text("version").value_or("gemm") != "GEMM") {
        config.refuse("AWQ in another version than gemm");
    }
    out.method = method == "awq" ? HfQuantisation::Method::awq : HfQuantisation::Method::gptq;
    out.zeros_are_less_one =
        method == "gptq" && inner.find_text("checkpoint_format").value_or("gptq") != "gptq_v2";
    return out;
}

}  // namespace

Result<HfModelShape> read_hf_config(std::string_view config_json, GgufBuilder& out) {
    simdjson::dom::parser parser;
    const auto root = parser.parse(config_json.data(), config_json.size());
    if (root.error() != simdjson::SUCCESS) {
        return invalid_input(fmt::format("config.json: {}", simdjson::error_message(root.error())));
    }
    HfJson config(root, "config.json");
    const ModelType* type = find_model_type(config);
    if (type == nullptr) return *config.error();
    HfModelShape shape;
    shape.architecture = type->architecture;
    // Where the field is left out it is the model type's own: true for Gemma alone.
    shape.ties_output =
        config.find_flag("tie_word_embeddings").value_or(type->name.starts_with("gemma"));
    shape.quantisation = read_quantisation(config);
    out.set_string("general.architecture", shape.architecture);
    KeyWriter writer(config, out, shape);
    writer.write_common();
    if (!config.error()) type->write(writer);
    if (config.error()) return *config.error();
    return shape;
}

}  // namespace troupe::model
