#include "gpu/device_users.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "gpu/cuda_check.hpp"

namespace troupe::gpu {
namespace {

std::vector<DeviceUser*>& users() {
    static std::vector<DeviceUser*> instance;
    return instance;
}

}  // namespace

DeviceUser::DeviceUser() {
    users().push_back(this);
}

DeviceUser::~DeviceUser() {
    std::erase(users(), this);
}

bool device_failed() {
    return cudaDeviceSynchronize() != cudaSuccess;
}

void reset_device() {
    for (DeviceUser* user : users())
        user->leave_device();
    CUDA_CHECK(cudaDeviceReset());
    (void)cudaGetLastError();  // of the fault
}

}  // namespace troupe::gpu
