// Metadata keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, section LLM.
#include "model/hyperparameters.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "runtime/base/log.hpp"

namespace troupe::model {
namespace {

constexpr std::array<std::string_view, 1> kArchitectures{"llama"};

// Reads keys under "<architecture>." and keeps the first error, so that the caller reads as a list.
class KeyReader {
 public:
    KeyReader(const GgufFile& file, std::string_view architecture)
        : file_(file), architecture_(architecture) {}

    std::optional<std::uint32_t> find_u32(std::string_view name) {
        return take(file_.find_u32(key(name)));
    }
    std::optional<float> find_f32(std::string_view name) { return take(file_.find_f32(key(name))); }
    std::optional<std::string_view> find_string(std::string_view name) {
        return take(file_.find_string(key(name)));
    }

    // In [1, max]; `fallback` 0 makes the key required.
    std::uint32_t count(std::string_view name, std::uint32_t max, std::uint32_t fallback = 0) {
        const auto found = find_u32(name);
        if (!found && fallback == 0) fail(fmt::format("metadata \"{}\" is missing", key(name)));
        const std::uint32_t value = found.value_or(fallback);
        if (value < 1 || value > max) {
            fail(fmt::format("metadata \"{}\" is {}, expected 1 to {}", key(name), value, max));
        }
        return value;
    }

    // A positive finite number; `fallback` 0 makes the key required.
    float positive(std::string_view name, float fallback = 0) {
        const auto found = find_f32(name);
        if (!found && fallback == 0) fail(fmt::format("metadata \"{}\" is missing", key(name)));
        const float value = found.value_or(fallback);
        if (!(value > 0) || !std::isfinite(value)) {
            fail(fmt::format("metadata \"{}\" is {}, expected a positive finite number", key(name),
                             value));
        }
        return value;
    }

    void fail(std::string message, ErrorKind kind = ErrorKind::invalid_input) {
        if (!error_) error_ = Error{kind, std::move(message)};
    }
    [[nodiscard]] std::string key(std::string_view name) const {
        return fmt::format("{}.{}", architecture_, name);
    }
    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
    template <class T>
    std::optional<T> take(const Result<std::optional<T>>& found) {
        if (found) return *found;
        if (!error_) error_ = found.error();
        return std::nullopt;
    }

    const GgufFile& file_;
    std::string_view architecture_;
    std::optional<Error> error_;
};

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

void read_rope(KeyReader& keys, Hyperparameters& out) {
    out.rope_freq_base = keys.positive("rope.freq_base", 10'000.0F);
    out.rope_dimension_count = keys.count("rope.dimension_count", out.head_length, out.head_length);
    if (out.rope_dimension_count % 2 != 0) {
        keys.fail(fmt::format("metadata \"{}\" is {}, expected an even number",
                              keys.key("rope.dimension_count"), out.rope_dimension_count));
    }
    const std::string_view scaling = keys.find_string("rope.scaling.type").value_or("none");
    const float linear = keys.find_f32("rope.scale_linear").value_or(1.0F);  // its older spelling
    if (scaling != "none" || linear != 1.0F) {
        keys.fail(fmt::format("rope scaling \"{}\" is not supported (metadata \"{}\"); \"none\" is",
                              scaling == "none" ? "linear" : log::escaped(scaling),
                              scaling == "none" ? keys.key("rope.scale_linear")
                                                : keys.key("rope.scaling.type")),
                  ErrorKind::unsupported);
    }
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
    const auto architecture = file.get_string("general.architecture");
    if (!architecture) return architecture.error();
    if (std::find(kArchitectures.begin(), kArchitectures.end(), *architecture) ==
        kArchitectures.end()) {
        return Error{ErrorKind::unsupported,
                     fmt::format("architecture \"{}\" is not supported; these are: {}",
                                 log::escaped(*architecture), fmt::join(kArchitectures, ", "))};
    }
    const auto name = file.find_string("general.name");
    if (!name) return name.error();

    Hyperparameters out;
    out.architecture = *architecture;
    out.name = name->value_or("");
    KeyReader keys{file, *architecture};
    out.block_count = keys.count("block_count", kLayersMax);
    out.context_length = keys.count("context_length", kContextLengthMax);
    out.embedding_length = keys.count("embedding_length", kWidthMax);
    out.feed_forward_length = keys.count("feed_forward_length", kWidthMax);
    out.rms_epsilon = keys.positive("attention.layer_norm_rms_epsilon");
    read_heads(keys, out);
    // Each of the others needs what was read before it.
    if (!keys.error()) read_rope(keys, out);
    if (!keys.error()) read_vocabulary_size(keys, file, out);
    if (keys.find_u32("expert_count").value_or(0) != 0) {
        keys.fail(fmt::format("mixture of experts is not supported (metadata \"{}\")",
                              keys.key("expert_count")),
                  ErrorKind::unsupported);
    }
    if (keys.error()) return *keys.error();
    return out;
}

}  // namespace troupe::model
