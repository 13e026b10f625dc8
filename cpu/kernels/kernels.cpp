// The choice among the sets of kernels that this machine can run.
#include "cpu/kernels/kernels.hpp"

#include <algorithm>
#include <string>

#include "cpu/kernels/sets.hpp"

namespace troupe::cpu {
namespace {

// Those of all architectures, so that a name from another machine is no riddle.
constexpr std::string_view known_names[] = {"avx2", "avx_vnni", "avx512", "amx", "dotprod", "i8mm"};

std::vector<const Kernels*> detect() {
    std::vector<const Kernels*> sets{&plain_kernels()};
    for (const MachineSet& set : machine_sets()) {
        if (set.can_run()) sets.push_back(&set.kernels());
    }
    return sets;
}

}  // namespace

const std::vector<const Kernels*>& available_kernels() {
    static const std::vector<const Kernels*> sets = detect();
    return sets;
}

std::string kernel_names() {
    std::string names = "auto";
    const std::span<const MachineSet> sets = machine_sets();
    if (sets.empty()) return names + " or plain";
    names += ", plain";
    for (const MachineSet& set : sets)
        names.append(&set == &sets.back() ? " or " : ", ").append(set.name);
    return names;
}

Result<const Kernels*> find_kernels(std::string_view name) {
    if (name == "auto") return available_kernels().back();
    std::string names = "auto";
    for (const Kernels* set : available_kernels()) {
        if (set->name == name) return set;
        names.append(", ").append(set->name);
    }
    std::string quoted(1, '"');
    quoted.append(name).append(1, '"');
    if (std::ranges::find(known_names, name) != std::end(known_names)) {
        return Error{ErrorKind::unsupported, "this machine cannot run the instruction set " +
                                                 quoted + "; it can run " + names};
    }
    return invalid_input("there is no instruction set " + quoted + "; there are " + names);
}

}  // namespace troupe::cpu
