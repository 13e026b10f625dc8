#include "model/tokenizer_export.hpp"

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/hf_folder.hpp"
#include "model/pretokenizer.hpp"
#include "model/pretokenizer_expressions.hpp"
#include "model/tokenizer_gguf.hpp"
#include "model/tokenizer_hf.hpp"

namespace troupe::model {
namespace {

// Composed characters alone: GGUF's keys have no word for Unicode's normal forms.
constexpr std::string_view kProbe =
    "Hello, world! It's 3.14 or 12345678 o'clock; I'LL WAIT.\n\n  \t x  y   \r\n"
    "def f(x):\n\treturn x**2 / 10_000  # naïve Ünïcödé façade\n"
    "Привет, мир! Γειά σου Κόσμε. 你好，世界！こんにちは 世界 안녕하세요 مرحبا שלום नमस्ते ไทย\n"
    "🙂👍🏽 — “quotes” … $100 <b>&amp;</b> http://a.b/c?d=e&f=g camelCaseWord "
    "HTTPServer "
    "a1b2c3 "
    " end ";

Error not_expressible(std::string_view what) {
    return Error{ErrorKind::unsupported,
                 "a GGUF file cannot say this tokenizer.json: " + std::string(what)};
}

std::vector<std::string> stretches_of(const PreTokenizer& pretokenizer) {
    std::vector<std::string> out;
    pretokenizer.split(kProbe, [&](std::string_view stretch) { out.emplace_back(stretch); });
    return out;
}

// The first name in GGUF of a pre-tokenizer that splits the probe alike; empty where none does.
std::string_view find_pre_name(const TokenizerData& data) {
    const auto wanted = stretches_of(*data.pretokenizer);
    for (const std::string_view name : pretokenizer_names()) {
        if (name == "default" || name == "gemma4") continue;
        const auto made = PreTokenizer::make(name);
        if (made && made->ignore_merges() == data.ignores_merges && stretches_of(*made) == wanted)
            return name;
    }
    return {};
}

// SentencePiece's scores, from the merges made of them: a piece is the better the sooner a merge
// makes it.
std::vector<float> scores_from_merges(const TokenizerData& data) {
    std::unordered_map<std::string, float> rank_by_piece;
    for (const std::string_view merge : data.merges) {
        std::string piece(merge);
        piece.erase(piece.find(' '), 1);
        rank_by_piece.emplace(std::move(piece), -static_cast<float>(rank_by_piece.size()) - 1);
    }
    std::vector<float> scores;
    for (const std::string_view piece : data.tokens) {
        const auto found = rank_by_piece.find(std::string(piece));
        scores.push_back(found == rank_by_piece.end() ? 0.0F : found->second);
    }
    return scores;
}

void write_special_tokens(const TokenizerData& data, GgufBuilder& out) {
    const auto set = [&](const char* key, TokenId id) {
        out.set_u32(std::string("tokenizer.ggml.") + key, static_cast<std::uint32_t>(id));
    };
    if (data.bos) set("bos_token_id", *data.bos);
    if (data.eos) set("eos_token_id", *data.eos);
    if (data.unknown) set("unknown_token_id", *data.unknown);
    constexpr std::array more{"eot_token_id", "eom_token_id"};
    std::size_t used = 0;
    for (const TokenId id : data.more_end_tokens) {
        if (id == data.eos.value_or(-1)) continue;
        if (!data.eos && used == 0)
            set("eos_token_id", id);
        else if (used < more.size())
            set(more[used], id);
        ++used;
    }
    out.set_bool("tokenizer.ggml.add_bos_token", data.add_bos.value_or(false));
}

Result<> write_vocabulary(TokenizerData& data, GgufBuilder& out) {
    std::vector<std::string> padding;  // GGUF wants a name for every id
    padding.reserve(data.tokens.size());
    std::vector<std::int32_t> types;
    for (std::size_t i = 0; i < data.tokens.size(); ++i) {
        if (data.tokens[i].empty())
            data.tokens[i] = padding.emplace_back("[PAD" + std::to_string(i) + "]");
        const bool unknown = data.unknown == static_cast<TokenId>(i);
        types.push_back(static_cast<std::int32_t>(unknown ? TokenType::unknown : data.types[i]));
    }
    out.set_strings("tokenizer.ggml.tokens", data.tokens);
    out.set_i32s("tokenizer.ggml.token_type", types);
    if (data.spells_bytes) {
        const std::string_view pre = find_pre_name(data);
        if (pre.empty()) return not_expressible("no name is known for its pre-tokenizer");
        out.set_string("tokenizer.ggml.model", "gpt2");
        out.set_string("tokenizer.ggml.pre", pre);
        out.set_strings("tokenizer.ggml.merges", data.merges);
    } else {
        out.set_string("tokenizer.ggml.model", "llama");
        out.set_string("tokenizer.ggml.pre", "default");
        out.set_f32s("tokenizer.ggml.scores", scores_from_merges(data));
        out.set_bool("tokenizer.ggml.add_space_prefix",
                     data.normalizer.run("a", true) != "a" || data.marking.run("a", true) != "a");
    }
    write_special_tokens(data, out);
    return {};
}

}  // namespace

Result<> export_hf_tokenizer(GgufBuilder& out) {
    const auto reference = load_tokenizer(out.file());
    if (!reference) return reference.error();
    const auto ends = out.file().find_i32s(kEndTokensKey);
    if (!ends) return ends.error();
    const std::vector<std::int32_t> end_tokens = ends->value_or(std::vector<std::int32_t>());
    const std::string_view json = out.file().get_string(kHfTokenizerKey).value();
    const auto config = out.file().find_string(kHfTokenizerConfigKey);
    if (!config) return config.error();
    const std::string_view config_json = config->value_or("");
    const HfTokenizerExtras extras{
        .end_tokens = end_tokens,
        .vocabulary_size = static_cast<std::size_t>((*reference)->vocabulary_size())};
    const auto write = [&](TokenizerData& data) -> Result<> {
        if (data.model != "gpt2") return not_expressible("it is no BPE");
        return write_vocabulary(data, out);
    };
    if (auto written = with_hf_tokenizer_data(json, config_json, extras, write); !written)
        return written;
    const auto made = load_tokenizer(out.file());
    if (!made) return made.error();
    std::vector<TokenId> wanted, got;
    (*reference)->encode(kProbe, wanted);
    (*made)->encode(kProbe, got);
    if (wanted != got) return not_expressible("its tokens differ from those of its nearest kind");
    out.remove(kHfTokenizerKey);
    out.remove(kHfTokenizerConfigKey);
    return {};
}

}  // namespace troupe::model
