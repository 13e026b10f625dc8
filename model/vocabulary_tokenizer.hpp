// What every tokenizer over a Vocabulary answers the same way; subclasses add encode().
#pragma once

#include "model/utf8.hpp"
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
    // Takes what `data` says of normalising.
    VocabularyTokenizer(Vocabulary vocabulary, TokenizerData& data)
        : vocabulary_(std::move(vocabulary)),
          normalizer_(std::move(data.normalizer)),
          marking_(std::move(data.marking)) {}

    Result<> set_add_bos(bool add_bos) {
        if (add_bos && !bos()) {
            return invalid_input("the tokenizer wants a BOS token but names none");
        }
        add_bos_ = add_bos;
        return {};
    }

    // User-defined tokens stand for themselves wherever they are spelt; `encode_stretch(stretch)`
    // appends the ids of what lies between them, normalised.
    template <class EncodeStretch>
    void encode_around_added(std::string_view text, std::vector<TokenId>& out,
                             const EncodeStretch& encode_stretch) const {
        split_at(vocabulary_.user_defined_tokens(), text, out, [&](std::string_view stretch) {
            if (normalizer_.is_empty()) return mark(stretch, out, encode_stretch);
            const std::string normalized = normalizer_.run(stretch, out.empty());
            split_at(vocabulary_.normalized_tokens(), normalized, out,
                     [&](std::string_view part) { mark(part, out, encode_stretch); });
        });
    }

    // Calls `visit(run, well_formed)` for each run of well-formed or ill-formed UTF-8.
    template <class Visit>
    static void for_each_valid_run(std::string_view text, const Visit& visit) {
        if (is_utf8(text)) return visit(text, true);
        for (bool well_formed = true; !text.empty(); well_formed = !well_formed) {
            const std::size_t length = utf8_run_length(text, well_formed);
            if (length > 0) visit(text.substr(0, length), well_formed);
            text.remove_prefix(length);
        }
    }

    Vocabulary vocabulary_;

 private:
    template <class EncodeStretch>
    void mark(std::string_view stretch, const std::vector<TokenId>& out,
              const EncodeStretch& encode_stretch) const {
        if (marking_.is_empty()) return encode_stretch(stretch);
        encode_stretch(marking_.run(stretch, out.empty()));
    }

    template <class EncodeStretch>
    static void split_at(const AddedTokens& tokens, std::string_view text,
                         std::vector<TokenId>& out, const EncodeStretch& encode_stretch) {
        std::size_t done = 0;
        while (const auto added = tokens.next(text, done)) {
            encode_stretch(text.substr(done, added->begin - done));
            out.push_back(added->id);
            done = added->end;
        }
        encode_stretch(text.substr(done));
    }

    TextNormalizer normalizer_;
    TextNormalizer marking_;
    bool add_bos_ = false;
};

}  // namespace troupe::model
