// Writes GGUF files, version 3: metadata as it is, tensors as they are or as another type.
#pragma once

#include <filesystem>
#include <optional>

#include "model/gguf.hpp"
#include "model/tensor_types.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

struct GgufWriteOptions {
    // What matrices become, one of kQuantisableTypes; absent: what they are. Vectors and routers
    // become float32; a matrix whose rows are not whole blocks becomes F16.
    std::optional<TensorType> type;
};

// Writes `file` to `path`, which must not be there yet, through a neighbour that is renamed at the
// end. Experts that are a tensor each are stacked, rows are put into GGUF's order; a tensor that
// keeps its type keeps its bits.
// Errors: io where the system refuses; invalid_input for experts of different types or shapes, and
// for numbers that are not finite where blocks are to be made of them, by tensor; unsupported for
// tensors that cannot become float32.
[[nodiscard]] Result<> write_gguf(const GgufFile& file, const std::filesystem::path& path,
                                  const GgufWriteOptions& options);

}  // namespace troupe::model
