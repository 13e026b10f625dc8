// Which expressions stand behind each value of `tokenizer.ggml.pre`. They are facts of the models'
// own tokenizer.json files, as llama.cpp collects them, spelled for PCRE2.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace troupe::model {

struct PreTokenizerKind {
    std::string_view name;
    std::span<const std::string_view> expressions;
    bool ignore_merges = false;
};

// All that are known, in order.
[[nodiscard]] std::vector<std::string_view> pretokenizer_names();

// Null where the name is not known.
[[nodiscard]] const PreTokenizerKind* find_pretokenizer(std::string_view name);

}  // namespace troupe::model
