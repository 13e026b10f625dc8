// The cards that a model runs on. CUDA's calls are about the card that their thread has chosen
// last: whoever drives several chooses before each. Belongs to the executor's thread.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

#include "gpu/cuda_check.hpp"
#include "runtime/base/result.hpp"

namespace troupe::gpu {

struct Cards {
    std::vector<int> ids;      // [ranks], as CUDA counts them
    cudaDeviceProp kind = {};  // of the first; all others are like it
    bool warpgroups = false;   // products of many rows are made by them
};

// Cards `first`, `first` + 1, and so on. Errors, each saying what to do: unsupported where there is
// no driver, no card that this build can use, or fewer than are asked for. Throws BackendError.
[[nodiscard]] Result<Cards> find_cards(std::uint32_t first, std::uint32_t count);

inline void select_card(int id) {
    CUDA_CHECK(cudaSetDevice(id));
}

}  // namespace troupe::gpu
