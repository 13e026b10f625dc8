// What every tokenizer over a Vocabulary answers the same way; subclasses add encode().
#pragma once

#include "model/vocabulary.hpp"

namespace troupe::model {

class VocabularyTokenizer : public Tokenizer {
 public:
    [[nodiscard]] std::optional<ControlMatch> next_control(std::string_view text,
                                                           std::size_t from) const final {
        return vocabulary_.control_tokens().next(text, from);
    }
    [[nodiscard]] std::string_view piece(TokenId id) const final { return vocabulary_.piece(id); }
    [[nodiscard]] std::string_view bytes_of(TokenId id) const final {
        return vocabulary_.bytes_of(id);
    }
    [[nodiscard]] bool is_control(TokenId id) const final { return vocabulary_.is_control(id); }
    [[nodiscard]] TokenId vocabulary_size() const final { return vocabulary_.size(); }
    [[nodiscard]] std::optional<TokenId> find(std::string_view piece) const final {
        const TokenId id = vocabulary_.find(piece);
        return id < 0 ? std::nullopt : std::optional(id);
    }
    [[nodiscard]] std::optional<TokenId> bos() const final { return vocabulary_.bos(); }
    [[nodiscard]] std::optional<TokenId> eos() const final { return vocabulary_.eos(); }
    [[nodiscard]] std::span<const TokenId> end_tokens() const final {
        return vocabulary_.end_tokens();
    }
    [[nodiscard]] bool add_bos() const final { return add_bos_; }

 protected:
    explicit VocabularyTokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

    Result<> set_add_bos(bool add_bos) {
        if (add_bos && !bos()) {
            return invalid_input("the tokenizer wants a BOS token but names none");
        }
        add_bos_ = add_bos;
        return {};
    }

    // User-defined tokens stand for themselves wherever they are spelt; `encode_stretch(stretch)`
    // appends the ids of what lies between them.
    template <class EncodeStretch>
    void encode_around_added(std::string_view text, std::vector<TokenId>& out,
                             EncodeStretch encode_stretch) const {
        std::size_t done = 0;
        while (const auto added = vocabulary_.user_defined_tokens().next(text, done)) {
            encode_stretch(text.substr(done, added->begin - done));
            out.push_back(added->id);
            done = added->end;
        }
        encode_stretch(text.substr(done));
    }

    Vocabulary vocabulary_;

 private:
    bool add_bos_ = false;
};

}  // namespace troupe::model
