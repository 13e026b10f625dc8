// The sets of kernels and the choice among them; what they compute stands in kernel_types.hpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cpu/kernels/kernel_types.hpp"
#include "cpu/kernels/packing.hpp"
#include "runtime/base/result.hpp"

namespace troupe::cpu {

// Always there.
[[nodiscard]] const Kernels& plain_kernels();

// The sets that this processor and operating system can run, slowest first; "plain" is always one.
// The first call asks Linux for the AMX tile registers, so make it before threads start.
[[nodiscard]] const std::vector<const Kernels*>& available_kernels();

// What find_kernels may be asked for on this architecture: "auto, plain, avx2 ... or amx".
[[nodiscard]] std::string kernel_names();

// The fastest set for "auto", else the named one. Errors: invalid_input for a name that does not
// exist, unsupported for a set this machine cannot run; both name the sets that can.
[[nodiscard]] Result<const Kernels*> find_kernels(std::string_view name);

}  // namespace troupe::cpu
