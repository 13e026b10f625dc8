// BPE by merges (`tokenizer.ggml.model` = gpt2): the text is split by the model's pre-tokenizer,
// each stretch becomes symbols, and neighbours merge in the order of the model's merge list.
// Symbols are bytes, or, where pieces are the text itself, characters. Any bytes are accepted:
// ill-formed UTF-8 goes through byte by byte, each ill-formed run a stretch of its own. Bytes that
// the vocabulary has no token for vanish before merging, as in the reference implementation
// (Hugging Face tokenizers), so that their neighbours may merge; so do characters, where there are
// neither byte tokens nor an unknown one.
#pragma once

#include <array>

#include "model/merge_queue.hpp"
#include "model/pretokenizer.hpp"
#include "model/vocabulary_tokenizer.hpp"

namespace troupe::model {

class BpeTokenizer final : public VocabularyTokenizer {
 public:
    [[nodiscard]] static Result<std::unique_ptr<const Tokenizer>> make(TokenizerData data);

    void encode(std::string_view text, std::vector<TokenId>& out) const override;

 private:
    using Queue = MergeQueue<TokenId, std::uint32_t>;

    BpeTokenizer(Vocabulary vocabulary, PreTokenizer pretokenizer, TokenizerData& data);

    Result<> fill_merges(const TokenizerData& data);
    void fill_words();

    void encode_between_added(std::string_view text, Queue& queue, std::vector<TokenId>& out) const;
    void encode_stretch(std::string_view bytes, Queue& queue, std::vector<TokenId>& out) const;
    void merge_stretch(std::string_view bytes, Queue& queue) const;
    void push_character(std::string_view character, Queue& queue, bool& last_is_unknown) const;
    void find_word_boundaries();

    PreTokenizer pretokenizer_;
    bool spells_bytes_ = true;
    bool ignores_merges_ = false;
    bool fuses_unknown_ = false;
    bool words_are_separate_ = false;  // no piece reaches from one word into the next
    TokenId unknown_ = -1;
    std::array<TokenId, 256> byte_tokens_{};  // -1: the byte has no token
    bool has_byte_tokens_ = true;             // all of them
    MergeTable merges_;
    PieceTable words_;  // stretches that merging makes one token, which is most words of a text
};

}  // namespace troupe::model
