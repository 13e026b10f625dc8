// A digest of a model file's tensors: names, shapes, types and every byte, for system_fingerprint.
// It tells files apart; it is no defence against someone who wants two files to look alike.
#pragma once

#include <cstdint>

#include "cpu/compute_threads.hpp"
#include "model/gguf.hpp"

namespace troupe::cpu {

// Reads all tensors, on all threads; the same for any number of them.
[[nodiscard]] std::uint64_t model_digest(const model::GgufFile& file, ComputeThreads& threads);

}  // namespace troupe::cpu
