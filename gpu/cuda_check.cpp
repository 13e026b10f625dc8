#include "gpu/cuda_check.hpp"

#include <fmt/format.h>

#include "model/backend.hpp"

namespace troupe::gpu {

void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line) {
    throw model::BackendError(fmt::format("{} ({}) from {} at {}:{}", cudaGetErrorString(error),
                                          cudaGetErrorName(error), call, file, line));
}

}  // namespace troupe::gpu
