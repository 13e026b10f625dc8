// A model's vocabulary: pieces, the bytes they stand for, and which tokens are special. Owns its
// text; immutable once made. What every kind of tokenizer shares.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/added_tokens.hpp"
#include "model/flat_table.hpp"
#include "model/tokenizer_data.hpp"

namespace troupe::model {

class Vocabulary {
 public:
    Vocabulary(Vocabulary&&) = default;
    Vocabulary& operator=(Vocabulary&&) = default;

    // `bytes_of_piece` appends what a token of type normal or byte stands for; user-defined
    // tokens stand for their spelling and control tokens for nothing.
    using BytesOfPiece = void (*)(std::string_view piece, TokenType type, std::string& out);

    [[nodiscard]] static Result<Vocabulary> make(const TokenizerData& data,
                                                 BytesOfPiece bytes_of_piece);

    [[nodiscard]] TokenId size() const { return static_cast<TokenId>(types_.size()); }
    [[nodiscard]] std::string_view piece(TokenId id) const { return pieces_.at(id); }
    [[nodiscard]] std::string_view bytes_of(TokenId id) const { return bytes_.at(id); }
    [[nodiscard]] TokenType type(TokenId id) const { return types_[static_cast<std::size_t>(id)]; }
    [[nodiscard]] bool is_control(TokenId id) const {
        return type(id) == TokenType::control || type(id) == TokenType::unknown;
    }
    // The id whose piece is `text`, or -1.
    [[nodiscard]] TokenId find(std::string_view text) const { return ids_.find(text); }

    [[nodiscard]] std::optional<TokenId> bos() const { return bos_; }
    [[nodiscard]] std::optional<TokenId> eos() const { return eos_; }
    [[nodiscard]] std::span<const TokenId> end_tokens() const { return end_tokens_; }
    [[nodiscard]] const AddedTokens& control_tokens() const { return control_tokens_; }
    [[nodiscard]] const AddedTokens& user_defined_tokens() const { return user_defined_tokens_; }
    // Those that are looked for in normalised text, by their normalised spelling.
    [[nodiscard]] const AddedTokens& normalized_tokens() const { return normalized_tokens_; }

 private:
    Vocabulary() = default;

    // Many short strings in one buffer. The buffer is a vector, whose bytes stay where they are
    // when it moves: other members hold views of them.
    class Strings {
     public:
        void add(std::string_view text);
        [[nodiscard]] TokenId count() const { return static_cast<TokenId>(begins_.size()) - 1; }
        [[nodiscard]] std::string_view at(TokenId id) const {
            const auto i = static_cast<std::size_t>(id);
            return {text_.data() + begins_[i], begins_[i + 1] - begins_[i]};
        }

     private:
        std::vector<char> text_;
        std::vector<std::size_t> begins_ = {0};
    };

    void choose_end_tokens(const TokenizerData& data);
    void settle_types();
    void fill_bytes(BytesOfPiece bytes_of_piece);
    void fill_tables(const TokenizerData& data);

    Strings pieces_;
    Strings bytes_;
    std::vector<TokenType> types_;
    PieceTable ids_;
    std::optional<TokenId> bos_;
    std::optional<TokenId> eos_;
    std::vector<TokenId> end_tokens_;
    AddedTokens control_tokens_;
    AddedTokens user_defined_tokens_;
    AddedTokens normalized_tokens_;
    Strings normalized_spellings_;
};

}  // namespace troupe::model
