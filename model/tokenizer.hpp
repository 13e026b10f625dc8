// Text to token ids and back. Implementations are immutable after construction: every member is
// const and safe to call from any number of threads at once.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "model/token.hpp"

namespace troupe::model {

// text[begin, end) is the spelling of control token `id`.
struct ControlMatch {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId id = 0;

    friend bool operator==(const ControlMatch&, const ControlMatch&) = default;
};

class Tokenizer {
 public:
    virtual ~Tokenizer() = default;

    Tokenizer(const Tokenizer&) = delete;
    Tokenizer& operator=(const Tokenizer&) = delete;

    // Appends the ids of text that a user wrote: never a control token, whatever the text looks
    // like, and no BOS. Any bytes are accepted, valid UTF-8 or not. Time is O(n log n) in bytes.
    // Where `out` is empty, the text is the beginning of the input: some tokenizers put a blank in
    // front there alone.
    virtual void encode(std::string_view text, std::vector<TokenId>& out) const = 0;

    // The first spelling of a control token at or after `from`, the longest one where several begin
    // at the same byte. For text that the server itself wrote; nullopt where there is none.
    [[nodiscard]] virtual std::optional<ControlMatch> next_control(std::string_view text,
                                                                   std::size_t from) const = 0;

    // encode() for text that the server itself wrote: spellings of control tokens become those
    // tokens, each stretch between two of them is encoded on its own.
    void encode_with_control(std::string_view text, std::vector<TokenId>& out) const;

    // What the vocabulary calls the token, for display ("Ġhello", "<0x0A>", "<|im_end|>").
    // Views stay valid as long as the tokenizer. `id` must be in [0, vocabulary_size()).
    [[nodiscard]] virtual std::string_view piece(TokenId id) const = 0;

    // The bytes that the token adds to an answer; perhaps a part of a code point. Empty for
    // control tokens. `id` must be in [0, vocabulary_size()).
    [[nodiscard]] virtual std::string_view bytes_of(TokenId id) const = 0;

    [[nodiscard]] virtual bool is_control(TokenId id) const = 0;
    [[nodiscard]] virtual TokenId vocabulary_size() const = 0;

    // The id whose piece() is exactly `piece`.
    [[nodiscard]] virtual std::optional<TokenId> find(std::string_view piece) const = 0;

    [[nodiscard]] virtual std::optional<TokenId> bos() const = 0;
    [[nodiscard]] virtual std::optional<TokenId> eos() const = 0;

    // Every id that ends a generation; the model's own EOS first where it has one.
    [[nodiscard]] virtual std::span<const TokenId> end_tokens() const = 0;

    // True where the model expects BOS in front of a prompt. encode() itself never adds it: the
    // caller does, once, unless its chat template has written it.
    [[nodiscard]] virtual bool add_bos() const = 0;

 protected:
    Tokenizer() = default;
};

}  // namespace troupe::model
