// Reads safetensors files: an index of the tensors in one, whose bytes are views. Immutable once
// parsed: any thread may read it.
//
// A file is untrusted: the header's length, every name, type, shape and range is checked, and the
// ranges must cover the data without overlap or hole, as the format wants it.
// Format: https://github.com/huggingface/safetensors, "Format".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/tensor_types.hpp"
#include "runtime/base/result.hpp"

namespace troupe::model {

// The format allows 100 MB; no published file comes near this.
inline constexpr std::uint64_t kSafetensorsHeaderBytesMax = 32U << 20;

struct SafeTensor {
    std::string name;
    TensorType type = TensorType::f32;
    std::vector<std::uint64_t> shape;  // the outermost dimension first; none for a single number
    std::span<const std::byte> bytes;  // row-major; not aligned
};

// In the order of their bytes. `file` must outlive the result.
// Errors: invalid_input, naming the field or tensor, for what is not safetensors or contradicts
// itself; unsupported for element types that GGUF has no word for.
[[nodiscard]] Result<std::vector<SafeTensor>> parse_safetensors(std::span<const std::byte> file);

}  // namespace troupe::model
