// Who has memory on the device. CUDA has one context for the whole process, and a fault in it can
// only be cleared by throwing all of it away: first everybody lets go, then the device is reset.
// Belongs to the executor's thread, and to whoever builds and destroys backends before and after.
#pragma once

namespace troupe::gpu {

class DeviceUser {
 public:
    DeviceUser();
    DeviceUser(const DeviceUser&) = delete;
    DeviceUser& operator=(const DeviceUser&) = delete;

    // Gives back everything on the device, whose calls may all fail by now.
    virtual void leave_device() = 0;

 protected:
    ~DeviceUser();
};

// Waits for the device's work; true where it has failed, now or before, and no call can succeed.
[[nodiscard]] bool device_failed();

// All users leave; then the device is as it was at the start. Throws BackendError where even that
// fails.
void reset_device();

}  // namespace troupe::gpu
