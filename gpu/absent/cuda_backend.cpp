// In a build without CUDA.
#include "gpu/cuda_backend.hpp"

namespace troupe::gpu {

Result<std::unique_ptr<model::Backend>> make_cuda_backend(const model::GgufFile&,
                                                          const CudaOptions&) {
    return Error{ErrorKind::unsupported,
                 "this build has no CUDA backend (docs/gpu.md says how to make one): use --backend "
                 "cpu, or auto"};
}

}  // namespace troupe::gpu
