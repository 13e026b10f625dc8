// What a model file says about its tokenizer, as plain data, and the tokenizer made from it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "model/added_tokens.hpp"
#include "model/pretokenizer.hpp"
#include "model/text_normalizer.hpp"
#include "model/tokenizer.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// The values of `tokenizer.ggml.token_type`.
enum class TokenType : std::int32_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,  // matched in any text, before everything else
    unused = 5,
    byte = 6,  // SentencePiece's <0xNN>
};

// Views must live until make_tokenizer() returns; it copies what it keeps.
struct TokenizerData {
    // "gpt2": BPE by merges; "llama": SentencePiece BPE by scores; "t5": unigram; "bert": WordPiece
    std::string_view model;
    std::string_view pre;  // which pre-tokenizer splits the text; BPE only
    std::vector<std::string_view> tokens;
    std::vector<TokenType> types;          // as many as tokens, or none: all normal
    std::vector<float> scores;             // as many as tokens; SentencePiece only
    std::vector<std::string_view> merges;  // "left right", best first; BPE by merges only
    // As many as tokens, or none: how user-defined and control tokens are found in text.
    std::vector<AddedTokenRules> rules;
    std::optional<TokenId> bos;
    std::optional<TokenId> eos;
    std::vector<TokenId> more_end_tokens;  // end-of-turn and its like, where the file names them
    std::optional<bool> add_bos;           // absent: the model kind's default
    std::optional<bool> add_space_prefix;  // absent: true; SentencePiece only

    // Not of "llama", whose text is always dealt with in the same way.
    TextNormalizer normalizer;
    TextNormalizer marking;  // of what lies between added tokens, after `normalizer`
    std::optional<PreTokenizer> pretokenizer;  // absent: the one that `pre` names
    // BPE: a piece spells bytes as GPT-2's vocabulary does; else it is the text itself, with U+2581
    // for a blank.
    bool spells_bytes = true;
    bool ignores_merges = false;  // a stretch that is a piece is that piece, whatever merges say
    bool byte_fallback = false;   // what is in no piece becomes <0xNN> tokens, where all are there
    bool fuses_unknown = false;   // neighbouring unknown characters are one unknown token
    std::optional<TokenId> unknown;
    // WordPiece: what pieces that begin a word begin with, and those that go on.
    std::string_view word_prefix;
    std::string_view continuation_prefix;
    std::size_t word_characters_max = 100;  // longer words are unknown
};

// Errors: unsupported for a model or pre-tokenizer that is not known, invalid_input for data that
// contradicts itself (ids out of range, lists of different lengths, merges of unknown pieces).
[[nodiscard]] Result<std::unique_ptr<const Tokenizer>> make_tokenizer(TokenizerData data);

}  // namespace troupe::model
