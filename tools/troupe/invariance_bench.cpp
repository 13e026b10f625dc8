#include "tools/troupe/invariance_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cpu/cpu_backend.hpp"
#include "cpu/free_order/free_order.hpp"
#include "tools/troupe/engine_bench.hpp"
#include "tools/troupe/model_loading.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct InvarianceFlags {
    std::string model;
    std::string instruction_set = "auto";
    std::uint32_t threads = 0;
    std::uint32_t rounds = 9;
    bool as_json = false;
};

struct Work {
    std::string name;
    std::uint32_t streams = 0;  // 0: a prompt
    std::uint32_t context = 0;  // of a prompt: its length
    std::uint32_t steps = 0;
};

const std::vector<Work> kWorks = {
    {"prompt of 512", 0, 512, 0},
    {"1 stream", 1, 128, 64},
    {"8 streams", 8, 128, 48},
    {"32 streams", 32, 128, 24},
    {"1 stream, context 2048", 1, 2048, 48},
};

struct Row {
    std::string name;
    double invariant = 0, free = 0;       // tokens a second, medians
    double ratio = 0, low = 0, high = 0;  // free / invariant of a round: median, quartiles
};

double quantile(std::vector<double> values, double share) {
    std::ranges::sort(values);
    const double at = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(at);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (values[above] - values[below]) * (at - static_cast<double>(below));
}

// Tokens a second; of one thread, whose time others on the machine take, a second of its own.
double measure(model::Backend& backend, const Work& work, bool one_thread) {
    const EngineRate rate = work.streams == 0
                                ? measure_prefill(backend, work.context)
                                : measure_decode(backend, work.streams, work.context, work.steps);
    return static_cast<double>(rate.tokens) / (one_thread ? rate.processor_seconds : rate.seconds);
}

// Who is first changes from round to round.
Row compare(model::Backend& invariant, model::Backend& free, const Work& work,
            const InvarianceFlags& flags) {
    std::vector<double> with, without, ratios;
    const auto rate = [&](model::Backend& backend) {
        return measure(backend, work, flags.threads == 1);
    };
    (void)rate(invariant);
    (void)rate(free);
    for (std::uint32_t round = 0; round < flags.rounds; ++round) {
        if (round % 2 == 0) {
            with.push_back(rate(invariant));
            without.push_back(rate(free));
        } else {
            without.push_back(rate(free));
            with.push_back(rate(invariant));
        }
        ratios.push_back(without.back() / with.back());
    }
    return {work.name,
            quantile(with, 0.5),
            quantile(without, 0.5),
            quantile(ratios, 0.5),
            quantile(ratios, 0.25),
            quantile(ratios, 0.75)};
}

void print(const std::vector<Row>& rows, const InvarianceFlags& flags, std::string_view id,
           std::string_view set) {
    if (flags.as_json) {
        json::array out;
        for (const Row& row : rows) {
            out.push_back(json::object{{"name", row.name},
                                       {"invariant", row.invariant},
                                       {"free", row.free},
                                       {"ratio", row.ratio},
                                       {"quartiles", {row.low, row.high}}});
        }
        const json::object all{{"model", id}, {"instruction_set", set}, {"rows", std::move(out)}};
        std::printf("%s\n", json::serialize(all).c_str());
        return;
    }
    fmt::print(
        "{} ({}), {} rounds; tokens/s as it is, in free order, and the ratio with its "
        "quartiles\n",
        id, set, flags.rounds);
    for (const Row& row : rows)
        fmt::print("  {:<24} {:>8.1f} {:>8.1f}   x {:.3f} ({:.3f} to {:.3f})\n", row.name,
                   row.invariant, row.free, row.ratio, row.low, row.high);
}

int bench_invariance(const InvarianceFlags& flags) {
    const auto loaded = load_model(flags.model);
    if (!loaded) return report(loaded.error());
    if (!loaded->file) return report(invalid_input("the built-in model has no arithmetic"));
    const auto set = cpu::find_kernels(flags.instruction_set);
    if (!set) return report(set.error());
    const cpu::FreeOrder free_order = cpu::free_order_of(**set);
    if (free_order.kernels == nullptr) {
        return report(Error{ErrorKind::unsupported,
                            fmt::format("{} has no kernels of free order", (*set)->name)});
    }
    cpu::CpuOptions options;
    options.threads = flags.threads;
    options.slots_max = 32;
    options.kv_pages = 32 * 160 / model::kPageTokens;
    options.kernels = *set;
    const auto invariant = cpu::make_cpu_backend(*loaded->file, options);
    if (!invariant) return report(invariant.error());
    options.kernels = free_order.kernels;
    options.attend = free_order.attend;
    const auto free = cpu::make_cpu_backend(*loaded->file, options);
    if (!free) return report(free.error());
    std::vector<Row> rows;
    for (const Work& work : kWorks) {
        if (work.context + work.steps <= (*free)->info().context_length)
            rows.push_back(compare(**invariant, **free, work, flags));
    }
    print(rows, flags, loaded->id, (*set)->name);
    return exit_ok;
}

}  // namespace

void add_invariance_bench(Command& bench, Run& run) {
    const auto flags = std::make_shared<InvarianceFlags>();
    auto command = bench.add_subcommand(
        "invariance", "What it costs that answers do not depend on the batch, threads or set");
    command.add("--model,-m", flags->model, "a GGUF file or the name of a pulled model").required();
    command.add("--isa", flags->instruction_set,
                "instruction set: auto, avx2, avx_vnni, avx512 or amx");
    command.add("--threads", flags->threads, "compute threads; 0: one a core").within(0, 1024);
    command.add("--rounds", flags->rounds, "of both in turn").within(1, 1000);
    command.add_switch("--json", flags->as_json, "print one JSON object");
    command.when_chosen([flags, &run] { run = [flags] { return bench_invariance(*flags); }; });
}

}  // namespace troupe::tools
