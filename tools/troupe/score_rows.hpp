// Runs one text through a Backend by itself, without scheduler or sampling, and hands out the
// model's own scores. Works on any model::Backend; runs on the caller's thread. Uses slot 0 and
// pages from 0 up, so nothing else may use the backend meanwhile; the slot is closed at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "model/backend.hpp"
#include "runtime/base/result.hpp"

namespace troupe::tools {

// `scores` [vocabulary] is what the model gives for the token after `position`; valid in the call.
using RowFunction = std::function<void(std::uint32_t position, std::span<const float> scores)>;

// Computes `tokens` from position 0 with an empty cache and calls `on_row` for each of the last
// `rows` of them, by rising position. Both are at least 1. Error: more tokens than the context or
// the KV cache holds.
[[nodiscard]] Result<void> score_rows(model::Backend& backend,
                                      std::span<const model::TokenId> tokens, std::uint32_t rows,
                                      const RowFunction& on_row);

}  // namespace troupe::tools
