// Which sets a 64-bit ARM processor can run, as Linux tells.
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "cpu/kernels/sets.hpp"

namespace troupe::cpu {
namespace {

bool can_run_dotprod() {
    const unsigned long wanted = HWCAP_ASIMD | HWCAP_ASIMDDP | HWCAP_ATOMICS | HWCAP_ASIMDRDM;
    return (getauxval(AT_HWCAP) & wanted) == wanted;
}

bool can_run_i8mm() {
    return can_run_dotprod() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

}  // namespace

std::span<const MachineSet> machine_sets() {
    static constexpr MachineSet sets[] = {
        {"dotprod", can_run_dotprod, dotprod_kernels},
        {"i8mm", can_run_i8mm, i8mm_kernels},
    };
    return sets;
}

}  // namespace troupe::cpu
