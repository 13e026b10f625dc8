// Whether products may be made by warpgroups. Rows of a decoding step are multiplied by a warp's
// instruction, rows of a long prompt by a warpgroup's, and their sums must have the same bits. No
// manual promises that; so the card is asked before it is used.
#pragma once

#include <cuda_runtime.h>

namespace troupe::gpu {

// Of the card that the calling thread has chosen. False also where it, or this build, has none.
// Throws BackendError.
[[nodiscard]] bool warpgroups_agree(const cudaDeviceProp& card);

}  // namespace troupe::gpu
