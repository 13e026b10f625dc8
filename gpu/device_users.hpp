// Who has memory on cards. CUDA has one context a card for the whole process, and a fault in it can
// only be cleared by throwing all of it away: first everybody lets go, then cards are reset.
// Belongs to the executor's thread, and to whoever builds and destroys backends before and after.
#pragma once

#include <vector>

namespace troupe::gpu {

class DeviceUser {
 public:
    DeviceUser();
    DeviceUser(const DeviceUser&) = delete;
    DeviceUser& operator=(const DeviceUser&) = delete;

    // Waits for what it has under way, except for what a lost card would let nobody finish: that is
    // ended.
    virtual void come_to_rest() = 0;
    // Gives back everything on its cards, whose calls may all fail by now.
    virtual void leave_cards() = 0;
    [[nodiscard]] virtual const std::vector<int>& cards() const = 0;

 protected:
    ~DeviceUser();
};

// Waits for the work of all cards that have users; true where one has failed, now or before, and no
// call to it can succeed.
[[nodiscard]] bool any_card_failed();

// All users leave; then their cards are as they were at the start. Throws BackendError where even
// that fails.
void reset_cards();

}  // namespace troupe::gpu
