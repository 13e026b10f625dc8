// WordPiece (`tokenizer.ggml.model` = bert): each word is cut from the left into the longest pieces
// that are known; a word that cannot be cut so is one unknown token. What normalisation takes away
// (accents, case, control characters) does not come back.
#pragma once

#include "model/vocabulary_tokenizer.hpp"

namespace troupe::model {

class WordPieceTokenizer final : public VocabularyTokenizer {
 public:
    [[nodiscard]] static Result<std::unique_ptr<const Tokenizer>> make(TokenizerData data);

    void encode(std::string_view text, std::vector<TokenId>& out) const override;

 private:
    WordPieceTokenizer(Vocabulary vocabulary, TokenizerData& data);

    void encode_word(std::string_view word, std::vector<TokenId>& out) const;

    PreTokenizer pretokenizer_;
    PieceTable pieces_;
    std::string word_prefix_;
    std::string continuation_prefix_;
    std::size_t word_characters_max_ = 100;
    std::size_t piece_bytes_max_ = 0;
    TokenId unknown_ = -1;
};

}  // namespace troupe::model
