// The tokenizer of a GGUF model file.
#pragma once

#include "model/gguf.hpp"
#include "model/tokenizer_data.hpp"

namespace troupe::model {

// Reads the `tokenizer.ggml.*` keys; the views in it live as long as `file`.
[[nodiscard]] Result<TokenizerData> read_tokenizer_data(const GgufFile& file);

// Errors: those of the keys, and of make_tokenizer(). The tokenizer does not need `file` any more.
[[nodiscard]] Result<std::unique_ptr<const Tokenizer>> load_tokenizer(const GgufFile& file);

}  // namespace troupe::model
