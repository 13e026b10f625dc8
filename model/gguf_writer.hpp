// Writes GGUF files, version 3: metadata as it is, tensors as they are or as another type.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "model/gguf.hpp"
#include "model/quantisation_recipe.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

struct GgufWriteOptions {
    // What tensors become; null: what they are.
    const QuantisationRecipe* recipe = nullptr;
};

// Tensors of a file that became the same type for the same reason.
struct WrittenTensors {
    ChosenType chosen;
    std::size_t count = 0;
    std::uint64_t bytes = 0;
};

// Writes `file` to `path`, which must not be there yet, through a neighbour that is renamed at the
// end. Experts that are a tensor each are stacked, rows are put into GGUF's order; a tensor that
// keeps its type keeps its bits. Returns what was written, most bytes first.
// Errors: io where the system refuses; invalid_input for experts of different types or shapes, and
// for numbers that are not finite where blocks are to be made of them, by tensor; unsupported for
// tensors that cannot become float32.
[[nodiscard]] Result<std::vector<WrittenTensors>> write_gguf(const GgufFile& file,
                                                             const std::filesystem::path& path,
                                                             const GgufWriteOptions& options);

}  // namespace troupe::model
