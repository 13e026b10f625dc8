// The tokenizer of a Hugging Face folder as GGUF's `tokenizer.ggml.*` keys, for programs that read
// those alone.
#pragma once

#include "model/gguf_builder.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// Replaces the `tokenizer.huggingface.*` keys of the file, which must be there, by those of GGUF.
// What is written is tried: on a probe of many scripts, numbers, blanks and marks both tokenizers
// must say the same.
// Errors: unsupported for a tokenizer that those keys have no words for; those of reading it.
[[nodiscard]] Result<> export_hf_tokenizer(GgufBuilder& out);

}  // namespace troupe::model
