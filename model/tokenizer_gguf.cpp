#include "model/tokenizer_gguf.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "model/byte_level.hpp"
#include "model/hf_folder.hpp"
#include "model/hyperparameters.hpp"
#include "model/tokenizer_hf.hpp"

namespace troupe::model {

namespace {

// Moves what a getter found to `out`, where there is something; gives the getter's error.
template <class Found, class Out>
Result<> take(Result<std::optional<Found>> found, Out& out) {
    if (!found) return found.error();
    if (*found) out = std::move(**found);
    return {};
}

// Files write ids as unsigned, and some write 2^32 - 1 for "none".
Result<std::optional<TokenId>> find_token_id(const GgufFile& file, std::string_view key) {
    Result<std::optional<std::int64_t>> found = file.find_i64(key);
    if (!found) return found.error();
    if (!*found || **found == std::numeric_limits<std::uint32_t>::max()) {
        return std::optional<TokenId>();
    }
    if (**found < 0 || **found > std::numeric_limits<TokenId>::max()) {
        return invalid_input(std::string(key) + " is not a token id");
    }
    return std::optional(static_cast<TokenId>(**found));
}

// Files write it as an array of bytes, signed or not.
Result<std::string> read_character_map(const GgufFile& file) {
    std::vector<std::int32_t> numbers;
    if (Result<> taken = take(file.find_i32s("tokenizer.ggml.precompiled_charsmap"), numbers);
        !taken) {
        return taken.error();
    }
    std::string bytes;
    for (const std::int32_t number : numbers)
        bytes.push_back(static_cast<char>(number));
    return bytes;
}

// What files say of text before pieces are looked for, beyond the pre-tokenizer's name.
Result<> read_normalizer(const GgufFile& file, TokenizerData& data) {
    using Change = NormalizerStep::Kind;
    std::vector<NormalizerStep> steps;
    if (data.model == "gemma4") {
        data.model = "gpt2";
        data.pre = "gemma4";
        data.spells_bytes = false;
        data.byte_fallback = true;
        steps = {{Change::replace, " ", std::string(space_mark)}};
    } else if (data.model == "bert") {
        // The converter wrote "##x" as "x" and "x" as U+2581 "x".
        data.word_prefix = space_mark;
        steps = {{Change::clean},
                 {Change::space_ideographs},
                 {Change::nfd},
                 {Change::strip_accents},
                 {Change::lowercase}};
        const SplitStep words[] = {{R"(\s+)", SplitBehavior::removed},
                                   {R"([\p{P}$+<=>^`|~])", SplitBehavior::isolated}};
        Result<PreTokenizer> split = PreTokenizer::make(words);
        if (!split) return split.error();
        data.pretokenizer = std::move(*split);
    } else if (data.model == "t5") {
        Result<std::string> map = read_character_map(file);
        if (!map) return map.error();
        bool collapses = false;
        if (Result<> taken =
                take(file.find_bool("tokenizer.ggml.remove_extra_whitespaces"), collapses);
            !taken) {
            return taken;
        }
        if (!map->empty()) steps.push_back({Change::precompiled, std::move(*map)});
        if (collapses)
            steps.insert(steps.end(),
                         {{Change::strip_left}, {Change::strip_right}, {Change::collapse_spaces}});
        steps.push_back({Change::replace, " ", std::string(space_mark)});
        if (data.add_space_prefix.value_or(true)) {
            steps.push_back({Change::prepend_unless_there, "", std::string(space_mark)});
        }
        data.byte_fallback = true;
    }
    Result<TextNormalizer> made = TextNormalizer::make(steps);
    if (!made) return made.error();
    data.normalizer = std::move(*made);
    return {};
}

Result<> read_special_tokens(const GgufFile& file, TokenizerData& data) {
    Result<std::optional<TokenId>> bos = find_token_id(file, "tokenizer.ggml.bos_token_id");
    if (!bos) return bos.error();
    Result<std::optional<TokenId>> eos = find_token_id(file, "tokenizer.ggml.eos_token_id");
    if (!eos) return eos.error();
    data.bos = *bos;
    data.eos = *eos;
    Result<std::optional<TokenId>> unknown = find_token_id(file, "tokenizer.ggml.unknown_token_id");
    if (!unknown) return unknown.error();
    data.unknown = *unknown;
    constexpr std::array keys = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    for (const char* key : keys) {
        Result<std::optional<TokenId>> id = find_token_id(file, key);
        if (!id) return id.error();
        if (*id) data.more_end_tokens.push_back(**id);
    }
    std::vector<std::int32_t> ends;
    if (Result<> taken = take(file.find_i32s(kEndTokensKey), ends); !taken) return taken;
    data.more_end_tokens.insert(data.more_end_tokens.end(), ends.begin(), ends.end());
    return {};
}

}  // namespace

Result<TokenizerData> read_tokenizer_data(const GgufFile& file) {
    TokenizerData data;
    Result<std::string_view> model = file.get_string("tokenizer.ggml.model");
    if (!model) return model.error();
    data.model = *model;
    Result<std::vector<std::string_view>> tokens = file.get_strings("tokenizer.ggml.tokens");
    if (!tokens) return tokens.error();
    data.tokens = std::move(*tokens);

    std::vector<std::int32_t> types;
    for (Result<> taken : {
             take(file.find_string("tokenizer.ggml.pre"), data.pre),
             take(file.find_i32s("tokenizer.ggml.token_type"), types),
             take(file.find_f32s("tokenizer.ggml.scores"), data.scores),
             take(file.find_strings("tokenizer.ggml.merges"), data.merges),
             take(file.find_bool("tokenizer.ggml.add_bos_token"), data.add_bos),
             take(file.find_bool("tokenizer.ggml.add_space_prefix"), data.add_space_prefix),
             read_special_tokens(file, data),
         }) {
        if (!taken) return taken.error();
    }
    if (Result<> read = read_normalizer(file, data); !read) return read.error();
    for (const std::int32_t type : types) {
        // Unknown values appear in the wild (0 for "undefined"); they are ordinary text.
        const bool known = type >= 1 && type <= 6;
        data.types.push_back(known ? static_cast<TokenType>(type) : TokenType::normal);
    }
    return data;
}

namespace {

// That of a Hugging Face folder, or of a file that was made of one and kept its tokenizer.json.
Result<std::unique_ptr<const Tokenizer>> load_hf(const GgufFile& file, std::string_view json) {
    std::string_view config;
    std::string_view architecture;
    std::vector<std::int32_t> ends;
    std::uint32_t size = 0;
    for (Result<> taken : {take(file.find_string(kHfTokenizerConfigKey), config),
                           take(file.find_i32s(kEndTokensKey), ends),
                           take(file.find_string("general.architecture"), architecture)}) {
        if (!taken) return taken.error();
    }
    const std::string key = std::string(architecture) + ".vocab_size";
    if (Result<> taken = take(file.find_u32(key), size); !taken) return taken.error();
    const HfTokenizerExtras extras{.end_tokens = ends,
                                   .vocabulary_size = std::min(size, kVocabularyMax)};
    Result<HfTokenizer> made = load_hf_tokenizer(json, config, {}, extras);
    if (!made) return made.error();
    return std::move(made->tokenizer);
}

}  // namespace

Result<std::unique_ptr<const Tokenizer>> load_tokenizer(const GgufFile& file) {
    if (file.find("tokenizer.ggml.model") == nullptr) {
        Result<std::optional<std::string_view>> json = file.find_string(kHfTokenizerKey);
        if (!json) return json.error();
        if (*json) return load_hf(file, **json);
        return invalid_input(
            "there is no tokenizer: neither metadata \"tokenizer.ggml.model\" nor, in a folder, "
            "tokenizer.json");
    }
    Result<TokenizerData> data = read_tokenizer_data(file);
    if (!data) return data.error();
    return make_tokenizer(std::move(*data));
}

}  // namespace troupe::model
