// `--model toy`: a table of scores over ten words instead of weights, so that everything can be
// seen and tested without a download. Its tokenizer and chat template stand here, its backend in
// toy_backend.hpp. Immutable; any thread may use it. The table: docs/decoding.md, "The toy model".
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/token.hpp"
#include "model/tokenizer.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

inline constexpr std::array<std::string_view, 10> kToyWords{
    "<end>", "the", "cat", "dog", "sat", "ran", "on", "mat", "away", "quickly"};
inline constexpr TokenId kToyEnd = 0;

// Jinja: the contents of all messages, joined by spaces.
inline constexpr std::string_view kToyChatTemplate =
    "{% for message in messages %}{{ message['content'] }}{% if not loop.last %} {% endif %}"
    "{% endfor %}";

// The score of each word after `last`, which is all of the text that this model looks at.
[[nodiscard]] std::span<const float, kToyWords.size()> toy_scores(TokenId last);

// Words between spaces; a token's bytes are a space and its word.
class ToyTokenizer final : public Tokenizer {
 public:
    // Error: a word that is not in the vocabulary, by name.
    [[nodiscard]] static Result<std::vector<TokenId>> parse(std::string_view text);

    // The words joined by spaces, without one in front; control tokens are left out.
    [[nodiscard]] static std::string decode(std::span<const TokenId> ids);

    // Words that the vocabulary lacks are left out, as a byte tokenizer leaves out bytes.
    void encode(std::string_view text, std::vector<TokenId>& out) const override;
    [[nodiscard]] std::optional<ControlMatch> next_control(std::string_view text,
                                                           std::size_t from) const override;
    [[nodiscard]] std::string_view piece(TokenId id) const override;
    [[nodiscard]] std::string_view bytes_of(TokenId id) const override;
    [[nodiscard]] bool is_control(TokenId id) const override { return id == kToyEnd; }
    [[nodiscard]] TokenId vocabulary_size() const override { return kToyWords.size(); }
    [[nodiscard]] std::optional<TokenId> find(std::string_view piece) const override;
    [[nodiscard]] std::optional<TokenId> bos() const override { return std::nullopt; }
    [[nodiscard]] std::optional<TokenId> eos() const override { return kToyEnd; }
    [[nodiscard]] std::span<const TokenId> end_tokens() const override;
    [[nodiscard]] bool add_bos() const override { return false; }
};

}  // namespace troupe::model
