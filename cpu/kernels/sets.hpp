// The tables of each instruction set, for detection only: calling a function of a set that the
// machine cannot run is an illegal instruction.
#pragma once

#include "cpu/kernels/kernel_types.hpp"

namespace troupe::cpu {

[[nodiscard]] const Kernels& avx2_kernels();      // AVX2, FMA, F16C
[[nodiscard]] const Kernels& avx_vnni_kernels();  // the above and AVX-VNNI
[[nodiscard]] const Kernels& avx512_kernels();    // AVX-512 F, BW, DQ, VL, VNNI
[[nodiscard]] const Kernels& amx_kernels();       // the above and AMX int8

}  // namespace troupe::cpu
