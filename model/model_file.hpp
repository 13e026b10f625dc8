// A model of any form that is read, by its path.
#pragma once

#include <filesystem>
#include <string>

#include "model/gguf.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// A GGUF file, any part of one that is split, or a Hugging Face folder.
// Errors: those of GgufFile::open(), open_split_gguf() and open_hf_folder().
[[nodiscard]] Result<GgufFile> open_model(const std::filesystem::path& path);

// What people call the model at this path: a file's name without ".gguf" and the number of its
// part, or a folder's.
[[nodiscard]] std::string model_name(const std::filesystem::path& path);

}  // namespace troupe::model
