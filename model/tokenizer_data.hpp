// What a model file says about its tokenizer, as plain data, and the tokenizer made from it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

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
    std::string_view model;  // "gpt2": byte-level BPE; "llama": SentencePiece BPE
    std::string_view pre;    // which pre-tokenizer splits the text; byte-level BPE only
    std::vector<std::string_view> tokens;
    std::vector<TokenType> types;          // as many as tokens, or none: all normal
    std::vector<float> scores;             // as many as tokens; SentencePiece only
    std::vector<std::string_view> merges;  // "left right", best first; byte-level BPE only
    std::optional<TokenId> bos;
    std::optional<TokenId> eos;
    std::vector<TokenId> more_end_tokens;  // end-of-turn and its like, where the file names them
    std::optional<bool> add_bos;           // absent: the model kind's default
    std::optional<bool> add_space_prefix;  // absent: true; SentencePiece only
};

// Errors: unsupported for a model or pre-tokenizer that is not known, invalid_input for data that
// contradicts itself (ids out of range, lists of different lengths, merges of unknown pieces).
[[nodiscard]] Result<std::unique_ptr<const Tokenizer>> make_tokenizer(const TokenizerData& data);

}  // namespace troupe::model
