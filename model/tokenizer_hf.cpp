#include "model/tokenizer_hf.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>

#include "model/tokenizer_data.hpp"
#include "model/tokenizer_hf_steps.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {

namespace {

using Element = simdjson::dom::element;
using Found = simdjson::simdjson_result<Element>;

constexpr std::int64_t vocabulary_max = std::int64_t{1} << 24;

Result<Element> parse(simdjson::dom::parser& parser, std::string_view json, std::string_view name) {
    Element root;
    if (const auto error = parser.parse(json.data(), json.size()).get(root)) {
        return invalid_input(fmt::format("{}: {}", name, simdjson::error_message(error)));
    }
    return root;
}

// Reads one tokenizer.json into a TokenizerData, whose views point into the parsed document and
// into what this object owns.
class Reader {
 public:
    explicit Reader(Element root) : root_(root), model_(root["model"]) {}

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
    [[nodiscard]] Result<> set_piece(std::string_view piece, std::int64_t id, TokenType type);
    void mark_bytes();

    Element root_;
    Found model_;
    TokenizerData data_;
    std::deque<std::string> merges_;  // those that the file writes as pairs
};

std::string_view Reader::kind() const {
    simdjson::dom::array list;
    const bool scored = model_["vocab"].get(list) == simdjson::SUCCESS;
    const bool merges = model_["merges"].error() == simdjson::SUCCESS;
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
    data_.tokens[at] = piece;
    data_.types[at] = type;
    return {};
}

Result<> Reader::read_vocabulary() {
    simdjson::dom::object pieces;
    if (model_["vocab"].get(pieces) != simdjson::SUCCESS) {
        return invalid_input("tokenizer.json has no vocabulary");
    }
    for (const auto field : pieces) {
        std::int64_t id = -1;
        if (field.value.get(id) != simdjson::SUCCESS) id = -1;
        if (Result<> set = set_piece(field.key, id, TokenType::normal); !set) return set;
    }
    return {};
}

Result<> Reader::read_scored_pieces() {
    simdjson::dom::array pieces;
    if (model_["vocab"].get(pieces) != simdjson::SUCCESS) {
        return invalid_input("tokenizer.json has no vocabulary");
    }
    std::int64_t id = 0;
    for (const Element pair : pieces) {
        std::string_view piece;
        double score = 0;
        if (pair.at(0).get(piece) != simdjson::SUCCESS ||
            pair.at(1).get(score) != simdjson::SUCCESS) {
            return invalid_input(fmt::format("piece {} of tokenizer.json has no score", id));
        }
        if (Result<> set = set_piece(piece, id, TokenType::normal); !set) return set;
        data_.scores[static_cast<std::size_t>(id++)] = static_cast<float>(score);
    }
    return {};
}

Result<> Reader::read_added_tokens() {
    simdjson::dom::array added;
    if (root_["added_tokens"].get(added) != simdjson::SUCCESS) return {};
    for (const Element token : added) {
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
    }
    return {};
}

// "left right", or ["left", "right"].
Result<> Reader::read_merges() {
    simdjson::dom::array merges;
    if (model_["merges"].get(merges) != simdjson::SUCCESS) {
        return invalid_input("tokenizer.json has no merges");
    }
    for (const Element merge : merges) {
        std::string_view line;
        if (merge.get(line) == simdjson::SUCCESS) {
            data_.merges.push_back(line);
            continue;
        }
        std::string_view left;
        std::string_view right;
        if (merge.at(0).get(left) != simdjson::SUCCESS ||
            merge.at(1).get(right) != simdjson::SUCCESS ||
            left.find(' ') != std::string_view::npos) {
            return invalid_input(
                fmt::format("merge {} of tokenizer.json is no pair", data_.merges.size()));
        }
        merges_.push_back(std::string(left).append(" ").append(right));
        data_.merges.push_back(merges_.back());
    }
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
    simdjson::dom::parser parser;
    Result<Element> root = parse(parser, tokenizer_json, "tokenizer.json");
    if (!root) return root.error();
    Reader reader(*root);
    if (Result<> read = reader.read(); !read) return read.error();

    simdjson::dom::parser config_parser;
    Result<Element> config =
        parse(config_parser, config_json.empty() ? "{}" : config_json, "tokenizer_config.json");
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
    if (config_json.empty()) return std::string();
    simdjson::dom::parser parser;
    Result<Element> config = parse(parser, config_json, "tokenizer_config.json");
    if (!config) return config.error();
    return std::string(find_template((*config)["chat_template"]));
}

}  // namespace troupe::model
