#include "model/tokenizer_hf_steps.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "model/byte_level.hpp"
#include "model/pretokenizer_expressions.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {

namespace {

using Element = simdjson::dom::element;
using Found = simdjson::simdjson_result<Element>;
using Kind = NormalizerStep::Kind;

// Nested sequences deeper than this are nobody's tokenizer.
constexpr int depth_max = 16;
constexpr std::string_view white_space = R"(\s)";
constexpr std::string_view punctuation = R"([\p{P}$+<=>^`|~])";

bool is_there(const Found& found) {
    return found.error() == simdjson::SUCCESS && !found.value_unsafe().is_null();
}

Error not_known(std::string_view what, std::string_view type) {
    return Error{ErrorKind::unsupported, fmt::format("the {} \"{}\" of tokenizer.json is not known",
                                                     what, log::escaped(type, 60))};
}

// What \w is to Rust: letters, marks, digits, connectors, joiners, letters in circles and squares.
#define WORD                                                                     \
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}\x{24B6}-\x{24E9}\x{1F130}-)" \
    R"(\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})"

// {"String": "x"} or {"Regex": "x"}.
struct Pattern {
    std::string text;
    bool is_expression = false;
};

Result<Pattern> read_pattern(const Found& found) {
    std::string_view text;
    if (found["String"].get(text) == simdjson::SUCCESS) return Pattern{std::string(text), false};
    if (found["Regex"].get(text) == simdjson::SUCCESS) return Pattern{std::string(text), true};
    return invalid_input("a pattern of tokenizer.json is neither a String nor a Regex");
}

// A string as the expression that matches it.
std::string as_expression(std::string_view text) {
    std::string made;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        const bool plain = byte >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                           (c >= 'A' && c <= 'Z');
        if (!plain) made.push_back('\\');
        made.push_back(c);
    }
    return made;
}

// Characters from base64; nullopt where it is none.
std::optional<std::string> from_base64(std::string_view text) {
    constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string made;
    std::uint32_t bits = 0;
    int count = 0;
    for (const char c : text.substr(0, text.find('='))) {
        const std::size_t digit = digits.find(c);
        if (digit == std::string_view::npos) return std::nullopt;
        bits = (bits << 6) | static_cast<std::uint32_t>(digit);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        made.push_back(static_cast<char>((bits >> count) & 0xFF));
    }
    return made;
}

// What tokenizers before version 0.14 called add_prefix_space is now a scheme.
Kind prepend_kind(const Element& metaspace) {
    const bool old = flag_or(metaspace["add_prefix_space"], true);
    const std::string_view scheme = text_or(metaspace["prepend_scheme"], old ? "always" : "never");
    if (scheme == "first") return Kind::prepend_at_beginning;
    return scheme == "always" ? Kind::prepend_unless_there : Kind::prepend;
}

Result<SplitBehavior> read_behavior(std::string_view name) {
    constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> names = {{
        {"Removed", SplitBehavior::removed},
        {"Isolated", SplitBehavior::isolated},
        {"MergedWithPrevious", SplitBehavior::merged_with_previous},
        {"MergedWithNext", SplitBehavior::merged_with_next},
        {"Contiguous", SplitBehavior::contiguous},
    }};
    for (const auto& [known, behavior] : names) {
        if (known == name) return behavior;
    }
    return not_known("behavior", name);
}

void add_bert_normalizer(const Element& element, std::vector<NormalizerStep>& steps) {
    const bool lowercase = flag_or(element["lowercase"], true);
    if (flag_or(element["clean_text"], true)) steps.push_back({Kind::clean});
    if (flag_or(element["handle_chinese_chars"], true)) steps.push_back({Kind::space_ideographs});
    if (flag_or(element["strip_accents"], lowercase)) {
        steps.push_back({Kind::nfd});
        steps.push_back({Kind::strip_accents});
    }
    if (lowercase) steps.push_back({Kind::lowercase});
}

Result<> add_normalizer(const Element& element, HfSteps& steps, int depth);

Result<> add_all_normalizers(const Found& found, HfSteps& steps, int depth) {
    simdjson::dom::array list;
    if (found.get(list) != simdjson::SUCCESS || depth > depth_max) {
        return invalid_input("a sequence of tokenizer.json has no list, or is nested too deeply");
    }
    for (const Element one : list) {
        if (Result<> added = add_normalizer(one, steps, depth + 1); !added) return added;
    }
    return {};
}

Result<> add_replacement(const Element& element, HfSteps& steps) {
    Result<Pattern> pattern = read_pattern(element["pattern"]);
    if (!pattern) return pattern.error();
    const Kind kind = pattern->is_expression ? Kind::replace_expression : Kind::replace;
    steps.normalizer.push_back(
        {kind, std::move(pattern->text), std::string(text_or(element["content"], ""))});
    return {};
}

Result<> add_normalizer(const Element& element, HfSteps& steps, int depth) {
    const std::string_view type = text_or(element["type"], "");
    constexpr std::array<std::pair<std::string_view, Kind>, 6> plain = {{
        {"NFC", Kind::nfc},
        {"NFD", Kind::nfd},
        {"NFKC", Kind::nfkc},
        {"NFKD", Kind::nfkd},
        {"Lowercase", Kind::lowercase},
        {"StripAccents", Kind::strip_accents},
    }};
    for (const auto& [name, kind] : plain) {
        if (name != type) continue;
        steps.normalizer.push_back({kind});
        return {};
    }
    if (type == "Sequence") return add_all_normalizers(element["normalizers"], steps, depth);
    if (type == "Replace") return add_replacement(element, steps);
    if (type == "BertNormalizer") {
        add_bert_normalizer(element, steps.normalizer);
    } else if (type == "Prepend") {
        steps.normalizer.push_back(
            {Kind::prepend, "", std::string(text_or(element["prepend"], space_mark))});
    } else if (type == "Strip") {
        if (flag_or(element["strip_left"], true)) steps.normalizer.push_back({Kind::strip_left});
        if (flag_or(element["strip_right"], true)) steps.normalizer.push_back({Kind::strip_right});
    } else if (type == "Precompiled") {
        auto bytes = from_base64(text_or(element["precompiled_charsmap"], ""));
        if (!bytes) return invalid_input("the character map of tokenizer.json is not base64");
        if (!bytes->empty()) steps.normalizer.push_back({Kind::precompiled, std::move(*bytes)});
    } else {
        return not_known("normalizer", type);
    }
    return {};
}

Result<> add_pretokenizer(const Element& element, HfSteps& steps, int depth);

Result<> add_all_pretokenizers(const Found& found, HfSteps& steps, int depth) {
    simdjson::dom::array list;
    if (found.get(list) != simdjson::SUCCESS || depth > depth_max) {
        return invalid_input("a sequence of tokenizer.json has no list, or is nested too deeply");
    }
    for (const Element one : list) {
        if (Result<> added = add_pretokenizer(one, steps, depth + 1); !added) return added;
    }
    return {};
}

Result<> add_split(const Element& element, HfSteps& steps) {
    Result<Pattern> pattern = read_pattern(element["pattern"]);
    if (!pattern) return pattern.error();
    Result<SplitBehavior> behavior = read_behavior(text_or(element["behavior"], ""));
    if (!behavior) return behavior.error();
    // Oniguruma's intersection of classes is something else to PCRE2.
    if (pattern->is_expression && pattern->text.find("&&") != std::string::npos) {
        return not_known("expression", pattern->text);
    }
    steps.split.push_back({pattern->is_expression ? pattern->text : as_expression(pattern->text),
                           *behavior, flag_or(element["invert"], false)});
    return {};
}

void add_byte_level(const Element& element, HfSteps& steps) {
    steps.spells_bytes = true;
    if (flag_or(element["add_prefix_space"], true)) {
        steps.marking.push_back({Kind::prepend_unless_there, "", " "});
    }
    if (!flag_or(element["use_regex"], true)) return;
    steps.split.push_back({std::string(find_pretokenizer("gpt-2")->expressions[0])});
}

void add_metaspace(const Element& element, HfSteps& steps) {
    const std::string mark(text_or(element["replacement"], space_mark));
    // Behind a splitter at white space every word is marked: as if blanks were single ones.
    if (!steps.split.empty() && steps.split.back().expression == white_space) {
        steps.split.pop_back();
        steps.marking.push_back({Kind::replace_expression, R"(\s+(?=)" + mark + ")", ""});
        steps.marking.push_back({Kind::replace_expression, R"(\s+)", " "});
        steps.marking.push_back({Kind::strip_left});
        steps.marking.push_back({Kind::strip_right});
    }
    steps.marking.push_back({Kind::replace, " ", mark});
    const Kind kind = prepend_kind(element);
    if (kind != Kind::prepend) steps.marking.push_back({kind, "", mark});
    if (flag_or(element["split"], true)) {
        steps.split.push_back({as_expression(mark), SplitBehavior::merged_with_next});
    }
}

Result<> add_pretokenizer(const Element& element, HfSteps& steps, int depth) {
    const std::string_view type = text_or(element["type"], "");
    const auto add = [&steps](std::string_view expression, SplitBehavior behavior,
                              bool invert = false) {
        steps.split.push_back({std::string(expression), behavior, invert});
    };
    if (type == "Sequence") return add_all_pretokenizers(element["pretokenizers"], steps, depth);
    if (type == "Split") return add_split(element, steps);
    if (type == "ByteLevel") {
        add_byte_level(element, steps);
    } else if (type == "Metaspace") {
        add_metaspace(element, steps);
    } else if (type == "Digits") {
        const bool single = flag_or(element["individual_digits"], false);
        add(R"(\p{N})", single ? SplitBehavior::isolated : SplitBehavior::contiguous);
    } else if (type == "Punctuation") {
        Result<SplitBehavior> behavior = read_behavior(text_or(element["behavior"], "Isolated"));
        if (!behavior) return behavior.error();
        add(punctuation, *behavior);
    } else if (type == "Whitespace") {
        add("[" WORD "]+|[^" WORD R"(\s]+)", SplitBehavior::removed, true);
    } else if (type == "WhitespaceSplit") {
        add(white_space, SplitBehavior::removed);
    } else if (type == "BertPreTokenizer") {
        add(white_space, SplitBehavior::removed);
        add(punctuation, SplitBehavior::isolated);
    } else {
        return not_known("pre-tokenizer", type);
    }
    return {};
}

#undef WORD

}  // namespace

Result<> read_hf_normalizer(Found element, HfSteps& steps) {
    return is_there(element) ? add_normalizer(element.value_unsafe(), steps, 0) : Result<>();
}

Result<> read_hf_pretokenizer(Found element, HfSteps& steps) {
    return is_there(element) ? add_pretokenizer(element.value_unsafe(), steps, 0) : Result<>();
}

}  // namespace troupe::model
