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
    "]?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-"
    "Ჿᴀ-"
    "ᴫᵫ-"
    "ᵷᵹ-ᶚḀ-ἕἘ-Ἕ"
    "ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\\x{1F7D}ᾀ-ᾴᾶ-ᾼ\\x{1FBE}ῂ-ῄῆ-ῌῐ-\\x{1FD3}ῖ-\\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\\x{2126}"
    "ℨ\\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎ"
    "ↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-"
    "𐓻𐲀-"
    "𐲲𐳀-"
    "𐳲𑢠-𑣟𞤀-𞥃]+";

// Marks belong to the letters before them.
constexpr string_view qwen35 =
    CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\p{L}\p{M}\p{N})" S
                R"(]+[\r\n]*|)" LINES_AND_SPACES;
constexpr string_view bailing = CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\p{L}\p{N})" S
                                            "]+[\\r\\n]*|[" S "]*[\\r\\n]|" SPACES;
constexpr string_view seed_coder =
    CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\r\n\p{L}\p{N})" S "]+|" LINES_AND_SPACES;
constexpr string_view exaone_moe =
    CONTRACTION R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\p{L}\p{N})" S
                "]+[\\r\\n/]?|[" S "]*[\\r\\n]|" SPACES;
constexpr string_view minicpm5 = CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\p{L}\p{N})" S
                                             R"(]+[\r\n]*|)" LINES_AND_SPACES;
constexpr string_view deepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|)" LINES_AND_SPACES;
constexpr string_view kana_and_han = "[一-龥\\x{3040}-ゟ゠-ヿ]+";
constexpr string_view up_to_three_digits = R"(\p{N}{1,3})";
// What is neither a blank nor one of many stops; "(" is one because of how it was once written.
constexpr string_view bloom_words = " ?[^(" S "|.,!?…。，、।۔،)]+";

constexpr std::array qwen35_expressions = {qwen35};
constexpr std::array bailing_expressions = {bailing};
constexpr std::array seed_coder_expressions = {seed_coder};
constexpr std::array exaone_moe_expressions = {exaone_moe};
constexpr std::array minicpm5_expressions = {up_to_three_digits, minicpm5};
constexpr std::array deepseek3_expressions = {up_to_three_digits, kana_and_han, deepseek3};
constexpr std::array bloom_expressions = {bloom_words};
constexpr std::array viking_expressions = {bloom_words, string_view(R"(\p{N})")};
constexpr std::array superbpe_expressions = {string_view(R"(\p{N}+)"),
                                             string_view(R"((?=(\d{3})+(?!\d)))")};
constexpr std::array chameleon_expressions = {
    string_view("<sentinel:[0-9]+>"),       string_view("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
    string_view("([\\t\\n]|    |  )"),      string_view(R"(\p{N})"),
    string_view(R"([\p{P}!-/:-@\[-`{-~])"), gpt2};
// Lines; within them everything may merge. The text is not spelled as bytes.
constexpr std::array gemma4_expressions = {string_view(R"([^\n]+|[\n]+)")};

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
    PreTokenizerKind{"exaone4", gpt2_expressions},
    PreTokenizerKind{"gigachat", gpt2_expressions},
    PreTokenizerKind{"a.x-4.0", gpt2_expressions},
    PreTokenizerKind{"mellum", gpt2_expressions},
    PreTokenizerKind{"roberta-bpe", gpt2_expressions},
    PreTokenizerKind{"jina-es", gpt2_expressions},
    PreTokenizerKind{"jina-de", gpt2_expressions},
    PreTokenizerKind{"jina-v1-en", gpt2_expressions},
    PreTokenizerKind{"jina-v2-es", gpt2_expressions},
    PreTokenizerKind{"jina-v2-de", gpt2_expressions},
    PreTokenizerKind{"jina-v2-code", gpt2_expressions},
    PreTokenizerKind{"trillion", gpt2_expressions},
    PreTokenizerKind{"granite-docling", gpt2_expressions},
    PreTokenizerKind{"smollm", single_digit_expressions},
    PreTokenizerKind{"starcoder", single_digit_expressions},
    PreTokenizerKind{"refact", single_digit_expressions},
    PreTokenizerKind{"command-r", single_digit_expressions},
    PreTokenizerKind{"codeshell", single_digit_expressions},
    PreTokenizerKind{"exaone", single_digit_expressions},
    PreTokenizerKind{"minerva-7b", single_digit_expressions},
    PreTokenizerKind{"mellum2", single_digit_expressions},
    PreTokenizerKind{"falcon", falcon_expressions},
    PreTokenizerKind{"deepseek-coder", deepseek_coder_expressions},
    PreTokenizerKind{"deepseek-llm", deepseek_llm_expressions},
    PreTokenizerKind{"deepseek-v3", deepseek3_expressions},
    PreTokenizerKind{"hunyuan-dense", deepseek3_expressions},
    PreTokenizerKind{"joyai-llm", deepseek3_expressions},
    PreTokenizerKind{"llama-bpe", llama3_expressions, true},
    PreTokenizerKind{"llama3", llama3_expressions, true},
    PreTokenizerKind{"llama-v3", llama3_expressions, true},
    PreTokenizerKind{"falcon3", llama3_expressions, true},
    PreTokenizerKind{"falcon-h1", llama3_expressions, true},
    PreTokenizerKind{"midm-2.0", llama3_expressions, true},
    PreTokenizerKind{"lfm2", llama3_expressions, true},
    PreTokenizerKind{"smaug-bpe", llama3_expressions},
    PreTokenizerKind{"dbrx", llama3_expressions},
    PreTokenizerKind{"glm4", llama3_expressions},
    PreTokenizerKind{"chatglm-bpe", llama3_expressions},
    PreTokenizerKind{"qwen2", qwen2_expressions},
    PreTokenizerKind{"deepseek-r1-qwen", qwen2_expressions},
    PreTokenizerKind{"kormo", qwen2_expressions},
    PreTokenizerKind{"megrez", qwen2_expressions},
    PreTokenizerKind{"stablelm2", qwen2_expressions},
    PreTokenizerKind{"hunyuan", qwen2_expressions},
    PreTokenizerKind{"solar-open", qwen2_expressions},
    PreTokenizerKind{"grok-2", qwen2_expressions},
    PreTokenizerKind{"qwen35", qwen35_expressions},
    PreTokenizerKind{"tekken", tekken_expressions, true},
    PreTokenizerKind{"pixtral", tekken_expressions, true},
    PreTokenizerKind{"gpt-4o", gpt4o_expressions},
    PreTokenizerKind{"llama4", gpt4o_expressions},
    PreTokenizerKind{"minimax-m2", gpt4o_expressions},
    PreTokenizerKind{"bailingmoe", bailing_expressions},
    PreTokenizerKind{"bailingmoe2", bailing_expressions},
    PreTokenizerKind{"llada-moe", bailing_expressions},
    PreTokenizerKind{"seed-coder", seed_coder_expressions},
    PreTokenizerKind{"exaone-moe", exaone_moe_expressions},
    PreTokenizerKind{"minicpm5", minicpm5_expressions},
    PreTokenizerKind{"bloom", bloom_expressions},
    PreTokenizerKind{"gpt3-finnish", bloom_expressions},
    PreTokenizerKind{"poro-chat", bloom_expressions},
    PreTokenizerKind{"viking", viking_expressions},
    PreTokenizerKind{"superbpe", superbpe_expressions},
    PreTokenizerKind{"chameleon", chameleon_expressions},
    PreTokenizerKind{"gemma4", gemma4_expressions},
};

}  // namespace

std::vector<string_view> pretokenizer_names() {
    std::vector<string_view> names;
    for (const PreTokenizerKind& kind : kinds) {
        if (!kind.name.empty()) names.push_back(kind.name);
    }
    return names;
}

const PreTokenizerKind* find_pretokenizer(std::string_view name) {
    const auto* const found =
        std::find_if(kinds.begin(), kinds.end(),
                     [&](const PreTokenizerKind& kind) { return kind.name == name; });
    return found == kinds.end() ? nullptr : found;
}

}  // namespace troupe::model
