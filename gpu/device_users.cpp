#include "gpu/device_users.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <set>
#include <vector>

#include "gpu/cuda_check.hpp"

namespace troupe::gpu {
namespace {

std::vector<DeviceUser*>& users() {
    static std::vector<DeviceUser*> instance;
    return instance;
}

std::set<int> cards_in_use() {
    std::set<int> cards;
    for (const DeviceUser* user : users())
        cards.insert(user->cards().begin(), user->cards().end());
    return cards;
}

}  // namespace

DeviceUser::DeviceUser() {
    users().push_back(this);
}

DeviceUser::~DeviceUser() {
    std::erase(users(), this);
}

bool any_card_failed() {
    for (DeviceUser* user : users())
        user->come_to_rest();
    return std::ranges::any_of(cards_in_use(), [](int card) {
        return cudaSetDevice(card) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess;
    });
}

void reset_cards() {
    for (DeviceUser* user : users())
        user->leave_cards();
    for (const int card : cards_in_use()) {
        (void)cudaSetDevice(card);  // which may tell of the fault, as may what follows
        CUDA_CHECK(cudaDeviceReset());
        (void)cudaGetLastError();
    }
}

}  // namespace troupe::gpu
