#include "model/vocabulary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace troupe::model {

namespace {

// Pieces that end a generation in the models that have them. Files name one end token and often
// mark the others as ordinary, which would let a user's text spell them.
constexpr std::array end_pieces = {
    std::string_view("<|endoftext|>"),
    std::string_view("<|im_end|>"),
    std::string_view("<|end|>"),
    std::string_view("<|eot_id|>"),
    std::string_view("<|eom_id|>"),
    std::string_view("<|end_of_text|>"),
    std::string_view("<end_of_turn>"),
    std::string_view("<turn|>"),
    std::string_view("<|EOT|>"),
    std::string_view("<EOT>"),
    std::string_view("<|return|>"),
    std::string_view("<|call|>"),
    std::string_view("<|endofprompt|>"),
    std::string_view("<|end_of_role|>"),
    std::string_view("</s>"),
    std::string_view("<eos>"),
    std::string_view("<|END_OF_TURN_TOKEN|>"),
    std::string_view("<｜end▁of▁sentence｜>"),
};

bool looks_like_control(std::string_view piece) {
    constexpr std::string_view wide_bar = "\xEF\xBD\x9C";  // U+FF5C
    if (piece.size() < 5 || !piece.starts_with('<') || !piece.ends_with('>')) return false;
    const std::string_view inner = piece.substr(1, piece.size() - 2);
    return (inner.starts_with('|') && inner.ends_with('|')) ||
           (inner.starts_with(wide_bar) && inner.ends_with(wide_bar));
}

// Converters fill gaps of a vocabulary with "[PAD<id>]"; nobody may spell those.
bool is_padding(std::string_view piece, std::size_t id) {
    return piece == fmt::format("[PAD{}]", id);
}

Result<> check(const TokenizerData& data) {
    if (data.tokens.empty()) return invalid_input("the tokenizer has no tokens");
    if (data.tokens.size() > std::size_t{1} << 24) {
        return invalid_input(fmt::format("{} tokens are too many", data.tokens.size()));
    }
    if (!data.types.empty() && data.types.size() != data.tokens.size()) {
        return invalid_input(
            fmt::format("{} token types for {} tokens", data.types.size(), data.tokens.size()));
    }
    if (!data.rules.empty() && data.rules.size() != data.tokens.size()) {
        return invalid_input(
            fmt::format("{} token rules for {} tokens", data.rules.size(), data.tokens.size()));
    }
    const auto in_range = [&](TokenId id) {
        return id >= 0 && static_cast<std::size_t>(id) < data.tokens.size();
    };
    std::vector<TokenId> named = data.more_end_tokens;
    if (data.bos) named.push_back(*data.bos);
    if (data.eos) named.push_back(*data.eos);
    if (data.unknown) named.push_back(*data.unknown);
    for (const TokenId id : named) {
        if (!in_range(id)) {
            return invalid_input(fmt::format("special token {} is outside the vocabulary of {}", id,
                                             data.tokens.size()));
        }
    }
    return {};
}

}  // namespace

void Vocabulary::Strings::add(std::string_view text) {
    text_.insert(text_.end(), text.begin(), text.end());
    begins_.push_back(text_.size());
}

Result<Vocabulary> Vocabulary::make(const TokenizerData& data, BytesOfPiece bytes_of_piece) {
    if (Result<> checked = check(data); !checked) return checked.error();
    Vocabulary made;
    for (const std::string_view piece : data.tokens)
        made.pieces_.add(piece);
    made.types_ = data.types;
    made.types_.resize(data.tokens.size(), TokenType::normal);
    made.ids_ = PieceTable(data.tokens.size());
    for (TokenId id = 0; id < made.size(); ++id)
        made.ids_.insert(made.piece(id), id);
    made.bos_ = data.bos;
    made.eos_ = data.eos;
    made.choose_end_tokens(data);
    made.settle_types();
    made.fill_bytes(bytes_of_piece);
    made.fill_tables(data);
    return made;
}

void Vocabulary::choose_end_tokens(const TokenizerData& data) {
    const auto add = [this](TokenId id) {
        if (id >= 0 && std::find(end_tokens_.begin(), end_tokens_.end(), id) == end_tokens_.end()) {
            end_tokens_.push_back(id);
        }
    };
    if (eos_) add(*eos_);
    for (const TokenId id : data.more_end_tokens)
        add(id);
    for (const std::string_view end_piece : end_pieces) {
        const TokenId id = ids_.find(end_piece);
        if (id < 0) continue;
        // "</s>" may be ordinary text to a model of web pages.
        if (type(id) != TokenType::normal || looks_like_control(end_piece)) add(id);
    }
    // A model that writes BOS has begun another document: the answer is over.
    if (bos_) add(*bos_);
}

void Vocabulary::settle_types() {
    for (std::size_t i = 0; i < types_.size(); ++i) {
        if (types_[i] != TokenType::user_defined) continue;
        const std::string_view text = piece(static_cast<TokenId>(i));
        if (looks_like_control(text)) types_[i] = TokenType::control;
        if (is_padding(text, i)) types_[i] = TokenType::unused;
    }
    for (const TokenId id : end_tokens_)
        types_[static_cast<std::size_t>(id)] = TokenType::control;
}

void Vocabulary::fill_bytes(BytesOfPiece bytes_of_piece) {
    std::string bytes;
    for (TokenId id = 0; id < size(); ++id) {
        bytes.clear();
        if (type(id) == TokenType::user_defined) {
            bytes = piece(id);
        } else if (!is_control(id)) {
            bytes_of_piece(piece(id), type(id), bytes);
        }
        bytes_.add(bytes);
    }
}

void Vocabulary::fill_tables(const TokenizerData& data) {
    std::vector<AddedTokens::Entry> control;
    std::vector<AddedTokens::Entry> user_defined;
    std::vector<AddedTokens::Entry> normalized;
    for (TokenId id = 0; id < size(); ++id) {
        if (piece(id).empty()) continue;
        const AddedTokenRules rules =
            data.rules.empty() ? AddedTokenRules{} : data.rules[static_cast<std::size_t>(id)];
        if (type(id) == TokenType::control) control.push_back({piece(id), id, rules});
        if (type(id) != TokenType::user_defined) continue;
        const bool as_it_is = !rules.in_normalized || data.normalizer.is_empty();
        (as_it_is ? user_defined : normalized).push_back({piece(id), id, rules});
        if (!as_it_is) normalized_spellings_.add(data.normalizer.run(piece(id), false));
    }
    for (TokenId i = 0; i < normalized_spellings_.count(); ++i) {
        normalized[static_cast<std::size_t>(i)].spelling = normalized_spellings_.at(i);
    }
    std::erase_if(normalized, [](const auto& entry) { return entry.spelling.empty(); });
    control_tokens_ = AddedTokens(std::move(control));
    user_defined_tokens_ = AddedTokens(std::move(user_defined));
    normalized_tokens_ = AddedTokens(std::move(normalized));
}

}  // namespace troupe::model
