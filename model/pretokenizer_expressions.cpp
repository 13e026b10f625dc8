#include "model/pretokenizer_expressions.hpp"

#include <algorithm>
#include <array>

namespace troupe::model {

namespace {

using std::string_view;

// In these, S stands for Unicode's White_Space inside a class: PCRE2's own \s has U+180E as well.
#define S \
    R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})"
#define CONTRACTION "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define GPT2_WORDS R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+)"
#define SPACES "[" S "]+(?![^" S "])|[" S "]+"
#define LINES_AND_SPACES "[" S "]*[\\r\\n]+|" SPACES

constexpr string_view gpt2 = GPT2_WORDS R"(| ?\p{N}+| ?[^\p{L}\p{N})" S "]+|" SPACES;

// First every \p{N} alone, then GPT-2's expression in each stretch between them, whose ends count
// as the end of the text: in one pass, "no more text" is "nothing but spaces or \p{N}".
constexpr string_view gpt2_single_digits =
    R"(\p{N}|)" GPT2_WORDS R"(| ?[^\p{L}\p{N})" S "]+|[" S R"(]+(?![^\p{N})" S "])|[" S "]+";

constexpr string_view llama3 = CONTRACTION
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\p{L}\p{N})" S R"(]+[\r\n]*|)" LINES_AND_SPACES;

constexpr string_view qwen2 = CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\p{L}\p{N})" S
                                          R"(]+[\r\n]*|)" LINES_AND_SPACES;

// Upper-case letters with marks, then lower-case ones: a new word begins where case rises.
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LEAD R"([^\r\n\p{L}\p{N}]?)"
constexpr string_view tekken =
    LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER R"(*|\p{N}| ?[^\p{L}\p{N})" S
               R"(]+[\r\n/]*|)" LINES_AND_SPACES;
constexpr string_view gpt4o =
    LEAD UPPER "*" LOWER "+" CONTRACTION "?|" LEAD UPPER "+" LOWER "*" CONTRACTION
               R"(?|\p{N}{1,3}| ?[^\p{L}\p{N})" S R"(]+[\r\n/]*|)" LINES_AND_SPACES;

constexpr string_view line_ends = R"([\r\n])";
constexpr string_view cjk = "[一-龥ࠀ-一가-\\x{D7FF}]+";
constexpr string_view deepseek_letters =
    "[" S
    "]?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-"
    "ᴫᵫ-"
    "ᵷᵹ-ᶚḀ-ἕἘ-Ἕ"
    "ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\\x{1F7D}ᾀ-ᾴᾶ-ᾼ\\x{1FBE}ῂ-ῄῆ-ῌῐ-\\x{1FD3}ῖ-\\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\x{2126}"
    "ℨ\\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎ"
    "ↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-"
    "𐲲𐳀-"
    "𐳲𑢠-𑣟𞤀-𞥃]+";

constexpr std::array gpt2_expressions = {gpt2};
constexpr std::array single_digit_expressions = {gpt2_single_digits};
constexpr std::array llama3_expressions = {llama3};
constexpr std::array qwen2_expressions = {qwen2};
constexpr std::array tekken_expressions = {tekken};
constexpr std::array gpt4o_expressions = {gpt4o};
constexpr std::array falcon_expressions = {string_view(R"([\p{P}$+<=>^~|`]+)"), gpt2,
                                           string_view("[0-9][0-9][0-9]")};
constexpr std::array deepseek_coder_expressions = {line_ends, string_view("[" S R"(]?\p{L}+)"),
                                                   string_view("[" S R"(]?\p{P}+)"), cjk,
                                                   string_view(R"(\p{N})")};
constexpr std::array deepseek_llm_expressions = {
    line_ends,
    deepseek_letters,
    string_view("[" S "]?[!-/:-~！-／：-～‘-‟\\x{3000}-。]+"),
    string_view("[" S R"(]+\z)"),
    cjk,
    string_view(R"(\p{N})")};

#undef S
#undef CONTRACTION
#undef GPT2_WORDS
#undef SPACES
#undef LINES_AND_SPACES
#undef UPPER
#undef LOWER
#undef LEAD

constexpr std::array kinds = {
    PreTokenizerKind{"", gpt2_expressions},
    PreTokenizerKind{"default", gpt2_expressions},
    PreTokenizerKind{"gpt-2", gpt2_expressions},
    PreTokenizerKind{"mpt", gpt2_expressions},
    PreTokenizerKind{"olmo", gpt2_expressions},
    PreTokenizerKind{"phi-2", gpt2_expressions},
    PreTokenizerKind{"jais", gpt2_expressions},
    PreTokenizerKind{"smollm", single_digit_expressions},
    PreTokenizerKind{"starcoder", single_digit_expressions},
    PreTokenizerKind{"refact", single_digit_expressions},
    PreTokenizerKind{"command-r", single_digit_expressions},
    PreTokenizerKind{"codeshell", single_digit_expressions},
    PreTokenizerKind{"exaone", single_digit_expressions},
    PreTokenizerKind{"falcon", falcon_expressions},
    PreTokenizerKind{"deepseek-coder", deepseek_coder_expressions},
    PreTokenizerKind{"deepseek-llm", deepseek_llm_expressions},
    PreTokenizerKind{"llama-bpe", llama3_expressions, true},
    PreTokenizerKind{"llama3", llama3_expressions, true},
    PreTokenizerKind{"llama-v3", llama3_expressions, true},
    PreTokenizerKind{"smaug-bpe", llama3_expressions},
    PreTokenizerKind{"dbrx", llama3_expressions},
    PreTokenizerKind{"qwen2", qwen2_expressions},
    PreTokenizerKind{"deepseek-r1-qwen", qwen2_expressions},
    PreTokenizerKind{"stablelm2", qwen2_expressions},
    PreTokenizerKind{"tekken", tekken_expressions, true},
    PreTokenizerKind{"gpt-4o", gpt4o_expressions},
    PreTokenizerKind{"llama4", gpt4o_expressions},
};

}  // namespace

const PreTokenizerKind* find_pretokenizer(std::string_view name) {
    const auto* const found =
        std::find_if(kinds.begin(), kinds.end(),
                     [&](const PreTokenizerKind& kind) { return kind.name == name; });
    return found == kinds.end() ? nullptr : found;
}

}  // namespace troupe::model
