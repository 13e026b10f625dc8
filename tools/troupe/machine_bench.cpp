// Prints memory bandwidth and the rate of integer multiply-adds of the instruction set in use.
#include "tools/troupe/machine_bench.hpp"

#include <fmt/format.h>

#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "cpu/machine_limits.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct MachineFlags {
    std::string instruction_set = "auto";
    std::uint32_t threads = 0;
    std::uint64_t read_bytes = std::uint64_t{256} << 20;
    bool as_json = false;
};

int bench_machine(const MachineFlags& flags) {
    const auto kernels = cpu::find_kernels(flags.instruction_set);
    if (!kernels) return report(kernels.error());
    const std::uint32_t threads =
        flags.threads != 0 ? flags.threads : std::max(1U, std::thread::hardware_concurrency());
    const auto limits = cpu::measure_machine_limits(**kernels, threads, flags.read_bytes, 1.0);
    if (!limits) return report(limits.error());
    if (flags.as_json) {
        const json::object out{{"threads", threads},
                               {"instruction_set", (*kernels)->name},
                               {"read_gb_per_s", limits->read_gb_per_s},
                               {"multiply_gop_per_s", limits->multiply_gop_per_s}};
        std::printf("%s\n", json::serialize(out).c_str());
        return exit_ok;
    }
    fmt::print("{} threads, {}\n  memory reads {:>10.1f} GB/s\n  int8 products {:>9.0f} GOP/s\n",
               threads, (*kernels)->name, limits->read_gb_per_s, limits->multiply_gop_per_s);
    return exit_ok;
}

}  // namespace

void add_machine_bench(Command& bench, Run& run) {
    const auto flags = std::make_shared<MachineFlags>();
    auto command = bench.add_subcommand(
        "machine", "Memory bandwidth and int8 products a second: what speeds are shares of");
    command.add("--threads", flags->threads, "threads (0: as the machine has processors)");
    command.add("--isa", flags->instruction_set,
                "instruction set: auto, plain, avx2, avx_vnni, avx512 or amx");
    command
        .add("--read", flags->read_bytes,
             "how much is read over and over: as much as a model has, for caches hold a part of it")
        .bytes();
    command.add_switch("--json", flags->as_json, "print one JSON object");
    command.when_chosen([flags, &run] { run = [flags] { return bench_machine(*flags); }; });
}

}  // namespace troupe::tools
