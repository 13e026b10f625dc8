// On a real card nothing is drawn from seeds and nothing is reset between tests.
#include "tests/gpu/emulator/emulator.hpp"

namespace troupe::emulator {

void set_seed(std::uint64_t) {}

const std::string& fault() {
    static const std::string none;
    return none;
}

bool hung() {
    return false;
}

void reset_machine(int) {}

void lose_device_after(std::uint64_t) {}

void set_capability(int) {}

void set_warpgroups_differ(bool) {}

void fail_capture_after(std::uint64_t) {}

std::uint64_t launches() {
    return 0;
}

std::uint64_t graph_launches() {
    return 0;
}

}  // namespace troupe::emulator
