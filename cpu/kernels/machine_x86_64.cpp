// Which sets an x86-64 processor and its operating system can run.
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/kernels/sets.hpp"

namespace troupe::cpu {
namespace {

struct CpuidLeaf {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidLeaf cpuid(unsigned leaf, unsigned subleaf) {
    CpuidLeaf out;
    if (__get_cpuid_count(leaf, subleaf, &out.eax, &out.ebx, &out.ecx, &out.edx) == 0) return {};
    return out;
}

bool has_bit(unsigned word, unsigned bit) {
    return ((word >> bit) & 1U) != 0;
}

// XCR0: the register states that the operating system saves; 0 where it cannot be asked.
std::uint64_t saved_states() {
    if (!has_bit(cpuid(1, 0).ecx, 27)) return 0;  // OSXSAVE
    unsigned low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (std::uint64_t{high} << 32) | low;
}

bool saves(std::uint64_t states) {
    return (saved_states() & states) == states;
}

bool can_run_avx2() {
    const CpuidLeaf one = cpuid(1, 0), seven = cpuid(7, 0);
    return saves(0x6) && has_bit(one.ecx, 12) /* FMA */ && has_bit(one.ecx, 29) /* F16C */ &&
           has_bit(seven.ebx, 5) /* AVX2 */ && has_bit(seven.ebx, 8) /* BMI2 */;
}

bool can_run_avx_vnni() {
    return can_run_avx2() && has_bit(cpuid(7, 1).eax, 4);
}

bool can_run_avx512() {
    const CpuidLeaf seven = cpuid(7, 0);
    return can_run_avx2() && saves(0xE6) && has_bit(seven.ebx, 16) /* F */ &&
           has_bit(seven.ebx, 17) /* DQ */ && has_bit(seven.ebx, 30) /* BW */ &&
           has_bit(seven.ebx, 31) /* VL */ && has_bit(seven.ecx, 11) /* VNNI */;
}

// Linux gives out the tile registers (state 18) on request, for the whole process.
bool can_run_amx() {
    constexpr long arch_req_xcomp_perm = 0x1023;
    constexpr long tile_data = 18;
    const CpuidLeaf seven = cpuid(7, 0);
    return can_run_avx512() && saves(0x60000) && has_bit(seven.edx, 24) /* AMX-TILE */ &&
           has_bit(seven.edx, 25) /* AMX-INT8 */ &&
           syscall(SYS_arch_prctl, arch_req_xcomp_perm, tile_data) == 0;
}

}  // namespace

std::span<const MachineSet> machine_sets() {
    static constexpr MachineSet sets[] = {
        {"avx2", can_run_avx2, avx2_kernels},
        {"avx_vnni", can_run_avx_vnni, avx_vnni_kernels},
        {"avx512", can_run_avx512, avx512_kernels},
        {"amx", can_run_amx, amx_kernels},
    };
    return sets;
}

}  // namespace troupe::cpu
