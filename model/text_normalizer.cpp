#include "model/text_normalizer.hpp"

#include <fmt/format.h>

#include "model/character_map.hpp"
#include "model/unicode.hpp"
#include "model/utf8.hpp"
#include "runtime/base/log.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace troupe::model {

namespace {

using Kind = NormalizerStep::Kind;

struct FreeExpression {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Expression = std::unique_ptr<pcre2_code, FreeExpression>;

// Each character through `put(out, code point)`; U+FFFD for what is ill-formed.
template <class Put>
std::string mapped(std::string_view text, const Put& put) {
    std::string out;
    out.reserve(text.size());
    while (!text.empty()) {
        const Utf8Unit unit = next_utf8(text);
        put(out, unit.form == Utf8Form::complete ? unit.code_point : char32_t{0xFFFD});
        text.remove_prefix(unit.length);
    }
    return out;
}

bool is_blank(char32_t c) {
    return unicode_class(c) == UnicodeClass::space;
}

void put_cleaned(std::string& out, char32_t c) {
    if (is_blank(c)) {
        out.push_back(' ');
    } else if (c != 0xFFFD && unicode_class(c) != UnicodeClass::other) {
        append_utf8(out, c);
    }
}

// The blocks that BERT's tokenizer calls Chinese.
bool is_ideograph(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
           (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

void put_spaced(std::string& out, char32_t c) {
    const bool spaced = is_ideograph(c);
    if (spaced) out.push_back(' ');
    append_utf8(out, c);
    if (spaced) out.push_back(' ');
}

void put_without_accent(std::string& out, char32_t c) {
    if (unicode_class(c) != UnicodeClass::nonspacing_mark) append_utf8(out, c);
}

std::string_view without_left_blanks(std::string_view text) {
    while (!text.empty()) {
        const Utf8Unit unit = next_utf8(text);
        if (unit.form != Utf8Form::complete || !is_blank(unit.code_point)) break;
        text.remove_prefix(unit.length);
    }
    return text;
}

std::string_view without_right_blanks(std::string_view text) {
    std::size_t end = 0;  // behind the last character that is no blank
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Unit unit = next_utf8(text.substr(at));
        at += unit.length;
        if (unit.form != Utf8Form::complete || !is_blank(unit.code_point)) end = at;
    }
    return text.substr(0, end);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
    std::string out;
    for (std::size_t at = text.find(from); at != std::string_view::npos; at = text.find(from)) {
        out += text.substr(0, at);
        out += to;
        text.remove_prefix(at + from.size());
    }
    return out += text;
}

std::string collapsed(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c != ' ' || !out.ends_with(' ')) out.push_back(c);
    }
    return out;
}

}  // namespace

class TextNormalizer::Step {
 public:
    [[nodiscard]] static Result<Step> make(const NormalizerStep& step) {
        Step made;
        made.step_ = step;
        if (step.kind == Kind::precompiled) {
            Result<CharacterMap> map = CharacterMap::make(step.from);
            if (!map) return map.error();
            made.map_ = std::move(*map);
        }
        if (step.kind == Kind::replace && step.from.empty()) {
            return invalid_input("the tokenizer's normalizer replaces nothing");
        }
        if (step.kind != Kind::replace_expression) return made;
        int error = 0;
        PCRE2_SIZE error_at = 0;
        made.expression_.reset(pcre2_compile(
            reinterpret_cast<PCRE2_SPTR>(step.from.data()), step.from.size(),
            PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &error_at, nullptr));
        if (!made.expression_) {
            return Error{ErrorKind::unsupported,
                         fmt::format("the tokenizer's expression \"{}\" is not understood at {}",
                                     log::escaped(step.from, 200), error_at)};
        }
        return made;
    }

    [[nodiscard]] std::string run(std::string_view text, bool at_beginning) const {
        switch (step_.kind) {
            case Kind::nfd:
                return normalize(text, NormalForm::nfd);
            case Kind::nfc:
                return normalize(text, NormalForm::nfc);
            case Kind::nfkd:
                return normalize(text, NormalForm::nfkd);
            case Kind::nfkc:
                return normalize(text, NormalForm::nfkc);
            case Kind::lowercase:
                return mapped(text, append_lower);
            case Kind::strip_left:
                return std::string(without_left_blanks(text));
            case Kind::strip_right:
                return std::string(without_right_blanks(text));
            case Kind::strip_accents:
                return mapped(text, put_without_accent);
            case Kind::clean:
                return mapped(text, put_cleaned);
            case Kind::space_ideographs:
                return mapped(text, put_spaced);
            case Kind::collapse_spaces:
                return collapsed(text);
            case Kind::replace:
                return replaced(text, step_.from, step_.to);
            case Kind::replace_expression:
                return substituted(text);
            case Kind::precompiled:
                return map_.run(text);
            default:
                return with_prefix(text, at_beginning);
        }
    }

 private:
    [[nodiscard]] std::string with_prefix(std::string_view text, bool at_beginning) const {
        const bool may = step_.kind == Kind::prepend
                             ? !text.empty()
                             : !text.empty() && !text.starts_with(step_.to) &&
                                   (at_beginning || step_.kind == Kind::prepend_unless_there);
        return may ? step_.to + std::string(text) : std::string(text);
    }

    [[nodiscard]] std::string substituted(std::string_view text) const {
        std::string out(text.size() * (1 + step_.to.size()) + step_.to.size() + 1, '\0');
        PCRE2_SIZE length = out.size();
        const int count =
            pcre2_substitute(expression_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                             text.size(), 0, PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_LITERAL,
                             nullptr, nullptr, reinterpret_cast<PCRE2_SPTR>(step_.to.data()),
                             step_.to.size(), reinterpret_cast<PCRE2_UCHAR*>(out.data()), &length);
        if (count < 0) return std::string(text);  // a limit: what is not matched stays
        out.resize(length);
        return out;
    }

    NormalizerStep step_;
    CharacterMap map_;
    Expression expression_;
};

TextNormalizer::TextNormalizer() = default;
TextNormalizer::~TextNormalizer() = default;
TextNormalizer::TextNormalizer(TextNormalizer&&) noexcept = default;
TextNormalizer& TextNormalizer::operator=(TextNormalizer&&) noexcept = default;

Result<TextNormalizer> TextNormalizer::make(const std::vector<NormalizerStep>& steps) {
    TextNormalizer made;
    for (const NormalizerStep& step : steps) {
        Result<Step> one = Step::make(step);
        if (!one) return one.error();
        made.steps_.push_back(std::move(*one));
    }
    return made;
}

std::string TextNormalizer::run(std::string_view text, bool at_beginning) const {
    std::string made(text);
    for (const Step& step : steps_)
        made = step.run(made, at_beginning);
    return made;
}

}  // namespace troupe::model
