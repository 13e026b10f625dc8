// A Hugging Face folder as a model: config.json, tokenizer.json and what goes with them, and
// model.safetensors, one file or in parts (model.safetensors.index.json). All in GGUF's terms, with
// matrices as views into the mapped files. docs/models.md says what is read.
#pragma once

#include <filesystem>
#include <string_view>

#include "model/gguf.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// tokenizer.json as it is, the key that GGUF's specification has for it; and the
// tokenizer_config.json beside it.
inline constexpr std::string_view kHfTokenizerKey = "tokenizer.huggingface.json";
inline constexpr std::string_view kHfTokenizerConfigKey = "tokenizer.huggingface.config.json";
// Ids that end an answer, beside those of the tokenizer: an array of i32.
inline constexpr std::string_view kEndTokensKey = "tokenizer.huggingface.end_token_ids";

// Errors: not_found for a file that is missing, invalid_input and unsupported for what it holds;
// the message names the file and what in it.
[[nodiscard]] Result<GgufFile> open_hf_folder(const std::filesystem::path& folder);

}  // namespace troupe::model
