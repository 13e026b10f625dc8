// From a file's tensor types to those that can be packed into panels, without changing a value: a
// type either is packable as it is, or its blocks are rewritten as others that hold the same
// numbers, or its values become float32. Pure functions; docs/models.md has the table.
#pragma once

#include <cstddef>

#include "cpu/kernels/packing.hpp"
#include "model/weights.hpp"

namespace troupe::cpu {

// What the matrix is packed as. Looks at the data where the type alone does not tell: the scales of
// MXFP4 may be outside the range of a half.
[[nodiscard]] WeightType packable_type(const model::Matrix& matrix);

// Whether rows of this tensor type are rows of that weight type, byte for byte.
[[nodiscard]] bool is_packable_as_it_is(model::TensorType from, WeightType to);

// Writes row `row` as `to`, which is packable_type(matrix) or f32: raw_row_bytes(to, columns).
void rewrite_row(const model::Matrix& matrix, std::size_t row, WeightType to, std::byte* out);

}  // namespace troupe::cpu
