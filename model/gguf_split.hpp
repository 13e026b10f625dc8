// GGUF files in parts, as llama.cpp's llama-gguf-split writes them: NAME-00001-of-00003.gguf and so
// on, each a GGUF file with some of the tensors; the metadata is in the first.
#pragma once

#include <filesystem>

#include "model/gguf.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// The file at `path`, or, where it is a part of a split one, all parts as one file, whichever part
// it is. Errors: those of GgufFile::open(); a part that is missing, or is not one of these, by
// name.
[[nodiscard]] Result<GgufFile> open_split_gguf(const std::filesystem::path& path);

}  // namespace troupe::model
