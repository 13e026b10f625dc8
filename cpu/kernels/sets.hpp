// The tables of each instruction set, for detection only: calling a function of a set that the
// machine cannot run is an illegal instruction.
#pragma once

#include <span>
#include <string_view>

#include "cpu/kernels/kernel_types.hpp"

namespace troupe::cpu {

// x86-64
[[nodiscard]] const Kernels& avx2_kernels();      // AVX2, FMA, F16C
[[nodiscard]] const Kernels& avx_vnni_kernels();  // the above and AVX-VNNI
[[nodiscard]] const Kernels& avx512_kernels();    // AVX-512 F, BW, DQ, VL, VNNI
[[nodiscard]] const Kernels& amx_kernels();       // the above and AMX int8

// 64-bit ARM
[[nodiscard]] const Kernels& dotprod_kernels();  // ARMv8.2 with dot products of bytes
[[nodiscard]] const Kernels& i8mm_kernels();     // the above and matrix products of bytes

// A set of the architecture the program is built for.
struct MachineSet {
    std::string_view name;
    bool (*can_run)();  // on this processor and operating system
    const Kernels& (*kernels)();
};

// All but plain, slowest first. Defined in machine_<architecture>.cpp, of which one is built.
[[nodiscard]] std::span<const MachineSet> machine_sets();

}  // namespace troupe::cpu
