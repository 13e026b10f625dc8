// A vocabulary of one end token and the letters a to z, for what needs text and no model.
#pragma once

#include <array>
#include <string_view>

#include "model/tokenizer.hpp"

namespace troupe::simulation {

class LetterTokenizer final : public model::Tokenizer {
 public:
    void encode(std::string_view text, std::vector<model::TokenId>& out) const override {
        for (const char c : text)
            out.push_back(c - 'a' + 1);
    }
    [[nodiscard]] std::optional<model::ControlMatch> next_control(std::string_view,
                                                                  std::size_t) const override {
        return std::nullopt;
    }
    [[nodiscard]] std::string_view piece(model::TokenId id) const override {
        return id == 0 ? std::string_view("<end>") : bytes_of(id);
    }
    [[nodiscard]] std::string_view bytes_of(model::TokenId id) const override {
        static constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz";
        return id == 0 ? std::string_view() : letters.substr(static_cast<std::size_t>(id - 1), 1);
    }
    [[nodiscard]] bool is_control(model::TokenId id) const override { return id == 0; }
    [[nodiscard]] model::TokenId vocabulary_size() const override { return 27; }
    [[nodiscard]] std::optional<model::TokenId> find(std::string_view) const override {
        return std::nullopt;
    }
    [[nodiscard]] std::optional<model::TokenId> bos() const override { return std::nullopt; }
    [[nodiscard]] std::optional<model::TokenId> eos() const override { return 0; }
    [[nodiscard]] std::span<const model::TokenId> end_tokens() const override {
        static constexpr std::array<model::TokenId, 1> end{0};
        return end;
    }
    [[nodiscard]] bool add_bos() const override { return false; }
};

}  // namespace troupe::simulation
