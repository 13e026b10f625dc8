// Unigram (`tokenizer.ggml.model` = t5): of all ways to cut a text into pieces the one with the
// greatest sum of scores, found by dynamic programming over its bytes. A character that is in no
// piece costs 10 more than the worst piece and becomes byte tokens or the unknown token.
// Source of the definition: Kudo 2018, https://arxiv.org/abs/1804.10959; ties and the price of
// unknown characters as in Hugging Face tokenizers.
#pragma once

#include <array>

#include "model/byte_trie.hpp"
#include "model/vocabulary_tokenizer.hpp"

namespace troupe::model {

class UnigramTokenizer final : public VocabularyTokenizer {
 public:
    [[nodiscard]] static Result<std::unique_ptr<const Tokenizer>> make(TokenizerData data);

    void encode(std::string_view text, std::vector<TokenId>& out) const override;

 private:
    struct Step;  // the best way to a place of the text

    UnigramTokenizer(Vocabulary vocabulary, TokenizerData& data);

    void encode_stretch(std::string_view text, std::vector<TokenId>& out) const;
    void append_unknown(std::string_view text, std::vector<TokenId>& out) const;

    PreTokenizer pretokenizer_;
    ByteTrie pieces_;
    std::vector<float> scores_;
    double unknown_score_ = 0;
    TokenId unknown_ = -1;
    std::array<TokenId, 256> byte_tokens_{};
    bool has_byte_tokens_ = false;
};

}  // namespace troupe::model
