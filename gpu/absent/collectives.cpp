// In a build without NCCL.
#include "gpu/collectives.hpp"

namespace troupe::gpu {

Result<std::unique_ptr<Collectives>> make_collectives(const std::vector<int>&) {
    return Error{
        ErrorKind::unsupported,
        "this build has no NCCL, so a model runs on one card: leave --gpus out, or install "
        "NCCL (libnccl-dev) and build anew"};
}

}  // namespace troupe::gpu
