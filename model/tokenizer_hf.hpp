// The tokenizer of a Hugging Face model folder: `tokenizer.json`, and what `tokenizer_config.json`
// adds: the chat template and which tokens begin and end a text.
// Format: https://github.com/huggingface/tokenizers (the serde types of the crate).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "model/tokenizer.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

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
                                                    std::string_view template_text = {});

}  // namespace troupe::model
