#include "model/tokenizer_hf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>

#include "model/json_pieces.hpp"
#include "model/tokenizer_data.hpp"
#include "model/tokenizer_hf_steps.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {

namespace {

using Element = simdjson::dom::element;
using Found = simdjson::simdjson_result<Element>;

constexpr std::int64_t vocabulary_max = std::int64_t{1} << 24;
constexpr std::string_view file_name = "tokenizer.json";
// What a file holds beside its lists of tokens and merges; the largest is a Precompiled normalizer,
// of less than a tenth of it.
constexpr std::size_t rest_bytes_max = std::size_t{4} << 20;

// Of what is only checked.
Result<> pass(const Element&) {
    return {};
}

Result<Element> parse(simdjson::dom::parser& parser, std::string_view json, std::string_view name) {
    Element root;
    if (const auto error = parser.parse(json.data(), json.size()).get(root)) {
        return invalid_input(fmt::format("{}: {}", name, simdjson::error_message(error)));
    }
    return root;
}

// Keeps texts that their parsers forget.
class TextStore {
 public:
    std::string_view keep(std::string_view text) {
        if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < text.size())
            blocks_.emplace_back().reserve(std::max(block_bytes, text.size()));
        std::string& block = blocks_.back();
        const std::size_t at = block.size();
        return std::string_view(block.append(text)).substr(at);
    }

 private:
    static constexpr std::size_t block_bytes = std::size_t{64} << 10;
    std::deque<std::string> blocks_;
};

// The texts of what makes tokenizer.json large.
struct LargeParts {
    std::string_view added_tokens;
    std::string_view vocabulary;
    std::string_view merges;
};

// Reads one tokenizer.json into a TokenizerData, whose views point into the parsed documents and
// into what this object owns.
class Reader {
 public:
    // `root` and `model` without `parts`.
    Reader(Element root, Element model, const LargeParts& parts)
        : root_(root), model_(Element(model)), parts_(parts) {}

    [[nodiscard]] Result<> read();
    [[nodiscard]] std::optional<TokenId> find(std::string_view piece) const;
    [[nodiscard]] TokenizerData& data() { return data_; }
    void resize(std::size_t vocabulary_size);

 private:
    [[nodiscard]] std::string_view kind() const;
    [[nodiscard]] Result<> read_vocabulary();
    [[nodiscard]] Result<> read_scored_pieces();
    [[nodiscard]] Result<> read_added_tokens();
    [[nodiscard]] Result<> read_merges();
    [[nodiscard]] Result<> read_steps();
    [[nodiscard]] Result<> read_first_token(const Found& processor, int depth);
    void reserve_pieces();
    [[nodiscard]] Result<> set_piece(std::string_view piece, std::int64_t id, TokenType type);
    void mark_bytes();
    [[nodiscard]] Result<> add_scored_piece(const Element& pair, std::int64_t id);
    [[nodiscard]] Result<> add_added_token(const Element& token);
    [[nodiscard]] Result<> add_merge(const Element& merge);

    Element root_;
    Found model_;
    LargeParts parts_;
    TokenizerData data_;
    TextStore texts_;
};

std::string_view Reader::kind() const {
    const bool scored = parts_.vocabulary.starts_with('[');
    const bool merges = !parts_.merges.empty() || model_["merges"].error() == simdjson::SUCCESS;
    return text_or(model_["type"], scored ? "Unigram" : merges ? "BPE" : "WordPiece");
}

Result<> Reader::set_piece(std::string_view piece, std::int64_t id, TokenType type) {
    if (id < 0 || id >= vocabulary_max) {
        return invalid_input(
            fmt::format("tokenizer.json gives \"{}\" the id {}", log::escaped(piece, 60), id));
    }
    const auto at = static_cast<std::size_t>(id);
    if (at >= data_.tokens.size()) {
        data_.tokens.resize(at + 1);
        data_.types.resize(at + 1, TokenType::unused);  // ids may have gaps
        data_.rules.resize(at + 1);
        data_.scores.resize(at + 1);
    }
    data_.tokens[at] = texts_.keep(piece);
    data_.types[at] = type;
    return {};
}

// Vectors that grow as they are filled take twice the room, and three times while they move.
void Reader::reserve_pieces() {
    const std::size_t count = count_pieces(parts_.vocabulary) + count_pieces(parts_.added_tokens);
    data_.tokens.reserve(count);
    data_.types.reserve(count);
    data_.rules.reserve(count);
    data_.scores.reserve(count);
}

Result<> Reader::read_vocabulary() {
    if (!parts_.vocabulary.starts_with('{'))
        return invalid_input("tokenizer.json has no vocabulary");
    return each_member(parts_.vocabulary, file_name, [&](const auto& member) {
        std::int64_t id = -1;
        if (member.value.get(id) != simdjson::SUCCESS) id = -1;
        return set_piece(member.key, id, TokenType::normal);
    });
}

Result<> Reader::add_scored_piece(const Element& pair, std::int64_t id) {
    std::string_view piece;
    double score = 0;
    if (pair.at(0).get(piece) != simdjson::SUCCESS || pair.at(1).get(score) != simdjson::SUCCESS)
        return invalid_input(fmt::format("piece {} of tokenizer.json has no score", id));
    if (Result<> set = set_piece(piece, id, TokenType::normal); !set) return set;
    data_.scores[static_cast<std::size_t>(id)] = static_cast<float>(score);
    return {};
}

Result<> Reader::read_scored_pieces() {
    if (!parts_.vocabulary.starts_with('['))
        return invalid_input("tokenizer.json has no vocabulary");
    std::int64_t id = 0;
    return each_element(parts_.vocabulary, file_name,
                        [&](const Element& pair) { return add_scored_piece(pair, id++); });
}

Result<> Reader::add_added_token(const Element& token) {
    std::string_view piece;
    std::int64_t id = -1;
    if (token["content"].get(piece) != simdjson::SUCCESS || piece.empty() ||
        token["id"].get(id) != simdjson::SUCCESS) {
        return invalid_input("an added token of tokenizer.json has no content or no id");
    }
    const bool special = flag_or(token["special"], false);
    const TokenType type = special ? TokenType::control : TokenType::user_defined;
    if (Result<> set = set_piece(piece, id, type); !set) return set;
    data_.rules[static_cast<std::size_t>(id)] = {
        .takes_left_blanks = flag_or(token["lstrip"], false),
        .takes_right_blanks = flag_or(token["rstrip"], false),
        .single_word = flag_or(token["single_word"], false),
        .in_normalized = flag_or(token["normalized"], !special),
    };
    return {};
}

Result<> Reader::read_added_tokens() {
    if (parts_.added_tokens.empty()) return {};
    return each_element(parts_.added_tokens, file_name,
                        [&](const Element& token) { return add_added_token(token); });
}

// "left right", or ["left", "right"].
Result<> Reader::add_merge(const Element& merge) {
    std::string_view line;
    if (merge.get(line) == simdjson::SUCCESS) {
        data_.merges.push_back(texts_.keep(line));
        return {};
    }
    std::string_view left;
    std::string_view right;
    if (merge.at(0).get(left) != simdjson::SUCCESS || merge.at(1).get(right) != simdjson::SUCCESS ||
        left.find(' ') != std::string_view::npos) {
        return invalid_input(
            fmt::format("merge {} of tokenizer.json is no pair", data_.merges.size()));
    }
    data_.merges.push_back(texts_.keep(std::string(left).append(" ").append(right)));
    return {};
}

Result<> Reader::read_merges() {
    if (!parts_.merges.starts_with('[')) return invalid_input("tokenizer.json has no merges");
    data_.merges.reserve(count_pieces(parts_.merges));
    if (Result<> read = each_element(parts_.merges, file_name,
                                     [&](const Element& merge) { return add_merge(merge); });
        !read)
        return read;
    const bool affixes = !text_or(model_["continuing_subword_prefix"], "").empty() ||
                         !text_or(model_["end_of_word_suffix"], "").empty();
    if (affixes) {
        return Error{ErrorKind::unsupported,
                     "BPE with a prefix or suffix of subwords (tokenizer.json) is not supported"};
    }
    return {};
}

Result<> Reader::read_steps() {
    HfSteps steps;
    if (Result<> read = read_hf_normalizer(root_["normalizer"], steps); !read) return read;
    if (Result<> read = read_hf_pretokenizer(root_["pre_tokenizer"], steps); !read) return read;
    Result<TextNormalizer> normalizer = TextNormalizer::make(steps.normalizer);
    if (!normalizer) return normalizer.error();
    Result<PreTokenizer> pretokenizer = PreTokenizer::make(steps.split);
    if (!pretokenizer) return pretokenizer.error();
    data_.normalizer = std::move(*normalizer);
    Result<TextNormalizer> marking = TextNormalizer::make(steps.marking);
    if (!marking) return marking.error();
    data_.marking = std::move(*marking);
    data_.pretokenizer = std::move(*pretokenizer);
    data_.spells_bytes = steps.spells_bytes;
    return {};
}

// The token that a post-processor puts in front of a text, if it does.
Result<> Reader::read_first_token(const Found& processor, int depth) {
    const std::string_view type = text_or(processor["type"], "");
    std::string_view piece;
    if (type == "TemplateProcessing") {
        piece = text_or(processor["single"].at(0)["SpecialToken"]["id"], "");
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
        piece = text_or(processor["cls"].at(0), "");
    } else if (type == "Sequence" && depth < 16) {
        simdjson::dom::array processors;
        if (processor["processors"].get(processors) != simdjson::SUCCESS) return {};
        for (const Element one : processors) {
            if (Result<> read = read_first_token(Found(Element(one)), depth + 1); !read)
                return read;
        }
    } else if (!type.empty() && type != "ByteLevel") {
        return Error{ErrorKind::unsupported,
                     fmt::format("the post-processor \"{}\" of tokenizer.json is not known",
                                 log::escaped(type, 60))};
    }
    if (piece.empty()) return {};
    data_.bos = find(piece);
    data_.add_bos = true;
    if (!data_.bos) return invalid_input("tokenizer.json puts an unknown token in front");
    return {};
}

void Reader::resize(std::size_t vocabulary_size) {
    data_.tokens.resize(vocabulary_size);
    data_.types.resize(vocabulary_size, TokenType::unused);
    data_.rules.resize(vocabulary_size);
    data_.scores.resize(vocabulary_size);
}

std::optional<TokenId> Reader::find(std::string_view piece) const {
    if (piece.empty()) return std::nullopt;
    const auto found = std::find(data_.tokens.begin(), data_.tokens.end(), piece);
    if (found == data_.tokens.end()) return std::nullopt;
    return static_cast<TokenId>(found - data_.tokens.begin());
}

void Reader::mark_bytes() {
    for (std::size_t i = 0; i < data_.tokens.size(); ++i) {
        const std::string_view piece = data_.tokens[i];
        const bool is_byte = piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
        if (is_byte && data_.types[i] == TokenType::normal) data_.types[i] = TokenType::byte;
    }
}

Result<> Reader::read() {
    const std::string_view kind = this->kind();
    data_.byte_fallback = flag_or(model_["byte_fallback"], false);
    data_.fuses_unknown = flag_or(model_["fuse_unk"], false);
    data_.ignores_merges = flag_or(model_["ignore_merges"], false);
    reserve_pieces();
    Result<> vocabulary;
    if (kind == "BPE") {
        data_.model = "gpt2";
        vocabulary = read_vocabulary();
    } else if (kind == "Unigram") {
        data_.model = "t5";
        vocabulary = read_scored_pieces();
    } else if (kind == "WordPiece") {
        data_.model = "bert";
        data_.continuation_prefix = text_or(model_["continuing_subword_prefix"], "##");
        std::uint64_t most = 100;
        if (model_["max_input_chars_per_word"].get(most) == simdjson::SUCCESS) {
            data_.word_characters_max = most;
        }
        vocabulary = read_vocabulary();
    } else {
        return Error{ErrorKind::unsupported,
                     fmt::format("the model \"{}\" of tokenizer.json is not supported; these are: "
                                 "BPE, Unigram, WordPiece",
                                 log::escaped(kind, 60))};
    }
    if (!vocabulary) return vocabulary;
    if (Result<> added = read_added_tokens(); !added) return added;
    if (data_.byte_fallback) mark_bytes();
    if (kind == "BPE") {
        if (Result<> merges = read_merges(); !merges) return merges;
    } else if (!parts_.merges.empty()) {
        if (Result<> checked = each_element(parts_.merges, file_name, pass); !checked)
            return checked;
    }
    data_.unknown = find(text_or(model_["unk_token"], ""));
    if (std::int64_t id = 0; model_["unk_id"].get(id) == simdjson::SUCCESS) {
        if (id < 0 || id >= static_cast<std::int64_t>(data_.tokens.size())) {
            return invalid_input("the unknown token of tokenizer.json is outside its vocabulary");
        }
        data_.unknown = static_cast<TokenId>(id);
    }
    if (Result<> steps = read_steps(); !steps) return steps;
    return read_first_token(root_["post_processor"], 0);
}

// A token of tokenizer_config.json: its text, or an object with it.
std::string_view token_text(const Found& found) {
    return text_or(found, text_or(found["content"], ""));
}

// tokenizer_config.json without its tokens, which tokenizer.json has, too.
Result<Element> parse_config(simdjson::dom::parser& parser, std::string_view json) {
    constexpr std::string_view name = "tokenizer_config.json";
    Result<CutJson> cut =
        cut_members(json.empty() ? "{}" : json, name, {"added_tokens_decoder"}, rest_bytes_max);
    if (!cut) return cut.error();
    if (!cut->values[0].empty()) {
        if (Result<> checked = each_element(cut->values[0], name, pass); !checked)
            return checked.error();
    }
    return parse(parser, cut->rest, name);
}

std::string_view find_template(const Found& found) {
    std::string_view text;
    if (found.get(text) == simdjson::SUCCESS) return text;
    simdjson::dom::array list;
    if (found.get(list) != simdjson::SUCCESS) return {};
    for (const Element one : list) {
        if (text_or(one["name"], "") == "default") return text_or(one["template"], "");
    }
    return {};
}

}  // namespace

Result<> with_hf_tokenizer_data(std::string_view tokenizer_json, std::string_view config_json,
                                const HfTokenizerExtras& extras,
                                const std::function<Result<>(TokenizerData&)>& use) {
    Result<CutJson> file =
        cut_members(tokenizer_json, file_name, {"added_tokens", "model"}, rest_bytes_max);
    if (!file) return file.error();
    const std::string_view model_json = file->values[1].empty() ? "{}" : file->values[1];
    Result<CutJson> model = cut_members(model_json, file_name, {"vocab", "merges"}, rest_bytes_max);
    if (!model) return model.error();
    simdjson::dom::parser root_parser, model_parser, config_parser;
    Result<Element> root = parse(root_parser, file->rest, file_name);
    if (!root) return root.error();
    Result<Element> model_root = parse(model_parser, model->rest, file_name);
    if (!model_root) return model_root.error();
    Reader reader(*root, *model_root, {file->values[0], model->values[0], model->values[1]});
    if (Result<> read = reader.read(); !read) return read.error();

    Result<Element> config = parse_config(config_parser, config_json);
    if (!config) return config.error();
    TokenizerData& data = reader.data();
    data.more_end_tokens.assign(extras.end_tokens.begin(), extras.end_tokens.end());
    if (extras.vocabulary_size != 0) reader.resize(extras.vocabulary_size);
    if (const auto bos = reader.find(token_text((*config)["bos_token"]))) data.bos = bos;
    data.eos = reader.find(token_text((*config)["eos_token"]));
    bool add_bos = false;
    if ((*config)["add_bos_token"].get(add_bos) == simdjson::SUCCESS) {
        data.add_bos = add_bos && data.bos.has_value();
    }
    return use(data);
}

Result<HfTokenizer> load_hf_tokenizer(std::string_view tokenizer_json, std::string_view config_json,
                                      std::string_view template_text,
                                      const HfTokenizerExtras& extras) {
    HfTokenizer made;
    if (template_text.empty()) {
        Result<std::string> found = find_hf_chat_template(config_json);
        if (!found) return found.error();
        made.chat_template = std::move(*found);
    } else {
        made.chat_template = template_text;
    }
    const auto make = [&](TokenizerData& data) -> Result<> {
        if (data.bos) made.bos_piece = data.tokens[static_cast<std::size_t>(*data.bos)];
        if (data.eos) made.eos_piece = data.tokens[static_cast<std::size_t>(*data.eos)];
        auto tokenizer = make_tokenizer(std::move(data));
        if (!tokenizer) return tokenizer.error();
        made.tokenizer = std::move(*tokenizer);
        return {};
    };
    if (Result<> done = with_hf_tokenizer_data(tokenizer_json, config_json, extras, make); !done)
        return done.error();
    return made;
}

Result<std::string> find_hf_chat_template(std::string_view config_json) {
    simdjson::dom::parser parser;
    Result<Element> config = parse_config(parser, config_json);
    if (!config) return config.error();
    return std::string(find_template((*config)["chat_template"]));
}

}  // namespace troupe::model
