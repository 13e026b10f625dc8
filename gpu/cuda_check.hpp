// CUDA_CHECK(call): an error of the runtime becomes a BackendError with call, file and line. An
// error of a kernel shows at some later call and stays: it ends the engine group.
#pragma once

#include <cuda_runtime.h>

namespace troupe::gpu {

// Throws model::BackendError.
[[noreturn]] void throw_cuda_error(cudaError_t error, const char* call, const char* file, int line);

}  // namespace troupe::gpu

#define CUDA_CHECK(call)                                                            \
    do {                                                                            \
        if (const cudaError_t cuda_error = (call); cuda_error != cudaSuccess)       \
            ::troupe::gpu::throw_cuda_error(cuda_error, #call, __FILE__, __LINE__); \
    } while (false)
