// The tokenizer of a Hugging Face model folder: `tokenizer.json`, and what `tokenizer_config.json`
// adds: the chat template and which tokens begin and end a text.
// Format: https://github.com/huggingface/tokenizers (the serde types of the crate).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "model/token.hpp"
#include "model/tokenizer.hpp"
#include "model/tokenizer_data.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// What a folder's other files say of its tokens.
struct HfTokenizerExtras {
    std::span<const TokenId> end_tokens;  // beside the tokenizer's own
    // What the model gives scores to; 0: what the tokenizer has. Ids beyond it are left out; where
    // the tokenizer has fewer, unused ones fill up.
    std::size_t vocabulary_size = 0;
};

struct HfTokenizer {
    std::unique_ptr<const Tokenizer> tokenizer;
    std::string chat_template;  // empty: the folder's files name none
    std::string bos_piece;      // what the template may write; empty: none
    std::string eos_piece;
};

// `tokenizer_json` is the text of tokenizer.json; `config_json` that of tokenizer_config.json, or
// empty. `template_text` is the text of chat_template.jinja, which goes before the config's own, or
// empty. Of several named templates the one called "default" is taken.
// Errors: unsupported, by name, for a model, normalizer, pre-tokenizer or post-processor that is
// not known; invalid_input for JSON that is none or contradicts itself.
[[nodiscard]] Result<HfTokenizer> load_hf_tokenizer(std::string_view tokenizer_json,
                                                    std::string_view config_json,
                                                    std::string_view template_text = {},
                                                    const HfTokenizerExtras& extras = {});

// Calls `use` with what load_hf_tokenizer() makes its tokenizer of; the views in it are valid only
// until `use` returns, whose error is handed on. Errors: those of load_hf_tokenizer().
[[nodiscard]] Result<> with_hf_tokenizer_data(std::string_view tokenizer_json,
                                              std::string_view config_json,
                                              const HfTokenizerExtras& extras,
                                              const std::function<Result<>(TokenizerData&)>& use);

// The chat template in a tokenizer_config.json; empty where there is none.
// Errors: invalid_input for JSON that is none.
[[nodiscard]] Result<std::string> find_hf_chat_template(std::string_view config_json);

}  // namespace troupe::model
