// The tokenizer of a GGUF model file, or of what was put into its terms.
#pragma once

#include "model/gguf.hpp"
#include "model/tokenizer_data.hpp"

namespace troupe::model {

// Reads the `tokenizer.ggml.*` keys; the views in it live as long as `file`.
[[nodiscard]] Result<TokenizerData> read_tokenizer_data(const GgufFile& file);

// Where the file has no `tokenizer.ggml.model`, that of its `tokenizer.huggingface.json`.
// Errors: those of the keys, and of make_tokenizer() or load_hf_tokenizer(). The tokenizer does not
// need `file` any more.
[[nodiscard]] Result<std::unique_ptr<const Tokenizer>> load_tokenizer(const GgufFile& file);

}  // namespace troupe::model
