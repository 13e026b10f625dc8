// SentencePiece BPE (`tokenizer.ggml.model` = llama): spaces become U+2581, one is put in front,
// neighbours merge into the piece with the best score, and what is in no piece becomes byte tokens.
// Any bytes are accepted; ill-formed UTF-8 becomes byte tokens.
#pragma once

#include <array>

#include "model/merge_queue.hpp"
#include "model/vocabulary_tokenizer.hpp"

namespace troupe::model {

class SpmTokenizer final : public VocabularyTokenizer {
 public:
    [[nodiscard]] static Result<std::unique_ptr<const Tokenizer>> make(const TokenizerData& data);

    void encode(std::string_view text, std::vector<TokenId>& out) const override;

 private:
    // A stretch of the text that is being encoded.
    struct Span {
        std::uint32_t begin = 0;
        std::uint32_t length = 0;
        friend bool operator==(const Span&, const Span&) = default;
    };
    using Queue = MergeQueue<Span, float>;

    explicit SpmTokenizer(Vocabulary vocabulary) : VocabularyTokenizer(std::move(vocabulary)) {}

    void encode_between_added(std::string_view text, Queue& queue, std::vector<TokenId>& out) const;
    void encode_word(std::string_view word, Queue& queue, std::vector<TokenId>& out) const;
    void merge_word(std::string_view word, Queue& queue) const;
    void fill_words();
    void emit(std::string_view symbol, std::vector<TokenId>& out) const;

    std::vector<float> scores_;
    PieceTable mergeable_;                    // what text may become: no control tokens
    PieceTable whole_words_;                  // words that merging makes one piece
    bool words_are_separate_ = false;         // no piece reaches from one word into the next
    std::array<TokenId, 256> byte_tokens_{};  // -1: the byte has no token
    TokenId unknown_ = -1;
    bool add_space_prefix_ = true;
};

}  // namespace troupe::model
