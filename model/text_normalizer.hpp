// What a tokenizer does to text before it splits it: normal forms, case, accents, replacements.
// Immutable; safe from every thread. Ill-formed UTF-8 goes through as it is, or becomes U+FFFD
// where a step looks at characters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.hpp"

namespace troupe::model {

struct NormalizerStep {
    enum class Kind : std::uint8_t {
        nfd,
        nfc,
        nfkd,
        nfkc,
        lowercase,
        strip_left,            // white space at the beginning
        strip_right,           // at the end
        strip_accents,         // nonspacing marks, after nfd
        clean,                 // BERT's: control characters go, white space becomes " "
        space_ideographs,      // BERT's: a blank on either side of each CJK ideograph
        collapse_spaces,       // runs of " " become one
        replace,               // `from` by `to`
        replace_expression,    // what the expression `from` matches by `to`
        prepend,               // `to`, where there is any text
        prepend_unless_there,  // `to`, where the text does not begin with it
        prepend_at_beginning,  // the same, for text at the beginning of the whole input
        precompiled,           // SentencePiece's map of characters: the bytes are in `from`
    };
    Kind kind = Kind::nfc;
    std::string from = {};
    std::string to = {};
};

class TextNormalizer {
 public:
    TextNormalizer();  // leaves text as it is
    ~TextNormalizer();
    TextNormalizer(TextNormalizer&&) noexcept;
    TextNormalizer& operator=(TextNormalizer&&) noexcept;

    // Errors: unsupported for an expression that PCRE2 does not understand, invalid_input for a
    // map that contradicts itself.
    [[nodiscard]] static Result<TextNormalizer> make(const std::vector<NormalizerStep>& steps);

    [[nodiscard]] bool is_empty() const { return steps_.empty(); }

    // `at_beginning`: nothing of the input stands before `text`.
    [[nodiscard]] std::string run(std::string_view text, bool at_beginning) const;

 private:
    class Step;

    std::vector<Step> steps_;
};

}  // namespace troupe::model
