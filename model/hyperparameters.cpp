// Metadata keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, section LLM.
#include "model/hyperparameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/architecture.hpp"
#include "model/key_reader.hpp"
#include "model/math.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

void read_heads(KeyReader& keys, Hyperparameters& out) {
    out.head_count = keys.count("attention.head_count", kHeadsMax);
    out.head_count_kv = keys.count("attention.head_count_kv", kHeadsMax, out.head_count);
    if (keys.error()) return;
    if (out.head_count % out.head_count_kv != 0) {
        return keys.fail(
            fmt::format("{} query heads cannot share {} key/value heads: metadata "
                        "\"{}\" must divide \"{}\"",
                        out.head_count, out.head_count_kv, keys.key("attention.head_count_kv"),
                        keys.key("attention.head_count")));
    }
    if (const auto length = keys.find_u32("attention.key_length")) {
        out.head_length = *length;
    } else if (out.embedding_length % out.head_count == 0) {
        out.head_length = out.embedding_length / out.head_count;
    } else {
        return keys.fail(fmt::format("metadata \"{}\" is {}, which {} heads do not divide",
                                     keys.key("embedding_length"), out.embedding_length,
                                     out.head_count));
    }
    const std::uint32_t value_length =
        keys.find_u32("attention.value_length").value_or(out.head_length);
    if (value_length != out.head_length) {
        keys.fail(fmt::format("keys of {} and values of {} elements a head are not supported",
                              out.head_length, value_length),
                  ErrorKind::unsupported);
    }
    if (out.head_length < 2 || out.head_length % 2 != 0 || out.head_length > kWidthMax) {
        keys.fail(fmt::format("heads have {} elements, expected an even number from 2 to {}",
                              out.head_length, kWidthMax));
    }
}

// YaRN's magnitude is 0.1 ln(factor) + 1 (Peng et al., "YaRN", 2023, section 3.4); for factors by
// frequency the file states it.
void read_rope_scale(KeyReader& keys, Hyperparameters& out) {
    RopeScale& scale = out.rope_scale;
    const std::string_view type = keys.find_string("rope.scaling.type").value_or("none");
    const float older = keys.find_f32("rope.scale_linear").value_or(1.0F);
    if (type == "linear" || (type == "none" && older != 1.0F)) {
        scale.kind = RopeScaling::linear;
        scale.factor = keys.positive("rope.scaling.factor", older);
    } else if (type == "yarn") {
        scale.kind = RopeScaling::yarn;
        scale.factor = keys.positive("rope.scaling.factor");
        scale.original_context = keys.count("rope.scaling.original_context_length",
                                            kContextLengthMax, out.context_length);
        scale.magnitude = keys.positive("rope.scaling.attn_factor", 1.0F) *
                          (1.0F + 0.1F * math::log(std::max(scale.factor, 1.0F)));
        scale.beta_fast = keys.positive("rope.scaling.yarn_beta_fast", scale.beta_fast);
        scale.beta_slow = keys.positive("rope.scaling.yarn_beta_slow", scale.beta_slow);
    } else if (type == "longrope") {
        scale.kind = RopeScaling::long_factors;
    } else if (type != "none") {
        keys.fail(fmt::format("rope scaling \"{}\" is not supported (metadata \"{}\"); \"none\", "
                              "\"linear\", \"yarn\" and \"longrope\" are",
                              log::escaped(type), keys.key("rope.scaling.type")),
                  ErrorKind::unsupported);
    }
}

void read_rope(KeyReader& keys, Hyperparameters& out) {
    out.rope_freq_base = keys.positive("rope.freq_base", 10'000.0F);
    out.rope_dimension_count = keys.count("rope.dimension_count", out.head_length, out.head_length);
    if (out.rope_dimension_count % 2 != 0) {
        keys.fail(fmt::format("metadata \"{}\" is {}, expected an even number",
                              keys.key("rope.dimension_count"), out.rope_dimension_count));
    }
    read_rope_scale(keys, out);
}

// The number of tokens is what the tokenizer holds; a key that says otherwise is a damaged file.
void read_vocabulary_size(KeyReader& keys, const GgufFile& file, Hyperparameters& out) {
    const GgufValue* tokens = file.find("tokenizer.ggml.tokens");
    const std::uint64_t token_count = tokens != nullptr && tokens->is_array ? tokens->count : 0;
    const auto fallback =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(token_count, kVocabularyMax + 1ULL));
    out.vocabulary_size = keys.count("vocab_size", kVocabularyMax, fallback);
    if (tokens != nullptr && token_count != out.vocabulary_size) {
        keys.fail(fmt::format("metadata \"{}\" is {}, but \"tokenizer.ggml.tokens\" has {} tokens",
                              keys.key("vocab_size"), out.vocabulary_size, token_count));
    }
}

}  // namespace

Result<Hyperparameters> read_hyperparameters(const GgufFile& file) {
    const auto name = file.get_string("general.architecture");
    if (!name) return name.error();
    const Architecture* architecture = find_architecture(*name);
    if (architecture == nullptr) {
        return Error{ErrorKind::unsupported,
                     fmt::format("architecture \"{}\" is not supported; these are: {}",
                                 log::escaped(*name), known_architectures())};
    }
    const auto title = file.find_string("general.name");
    if (!title) return title.error();

    Hyperparameters out;
    out.architecture = *name;
    out.name = title->value_or("");
    KeyReader keys{file, *name};
    out.block_count = keys.count("block_count", kLayersMax);
    out.context_length = keys.count("context_length", kContextLengthMax);
    out.embedding_length = keys.count("embedding_length", kWidthMax);
    out.feed_forward_length = keys.count("feed_forward_length", kWidthMax);
    out.rms_epsilon = keys.positive("attention.layer_norm_rms_epsilon");
    read_heads(keys, out);
    // Each of the others needs what was read before it.
    if (!keys.error()) read_rope(keys, out);
    if (!keys.error()) read_vocabulary_size(keys, file, out);
    if (!keys.error()) {
        out.layers.resize(out.block_count);
        out.attention_scale =
            keys.positive("attention.scale", 1.0F / std::sqrt(static_cast<float>(out.head_length)));
        architecture->read_keys(keys, out);
    }
    if (keys.error()) return *keys.error();
    return out;
}

bool is_plain_llama(const Hyperparameters& h) {
    return h.graph == BlockGraph::llama && h.rope_order == RopeOrder::pairs &&
           h.rope_scale.kind == RopeScaling::none && !h.has_fused_matrices &&
           std::all_of(h.layers.begin(), h.layers.end(), [](const LayerAttention& layer) {
               return layer.rope == LayerAttention::Rope::usual && layer.window == 0;
           });
}

}  // namespace troupe::model
