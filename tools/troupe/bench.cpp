// troupe bench: how fast this machine runs a model. "engine" measures the backend alone,
// "interference" what a long prompt does to streams that are running; more in files of their own.
#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cstdio>
#include <memory>

#include "tools/troupe/command.hpp"
#include "tools/troupe/engine_bench.hpp"
#include "tools/troupe/gateway_bench.hpp"
#include "tools/troupe/interference_bench.hpp"
#include "tools/troupe/invariance_bench.hpp"
#include "tools/troupe/machine_bench.hpp"
#include "tools/troupe/model_loading.hpp"
#include "tools/troupe/sampling_bench.hpp"
#include "tools/troupe/scheduler_bench.hpp"
#include "tools/troupe/sharing_bench.hpp"
#include "tools/troupe/speculation_bench.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct BenchFlags {
    BackendFlags backend;
    std::vector<std::uint32_t> prompts{512};
    std::vector<std::uint32_t> streams{1, 8, 32};
    std::uint32_t context = 128;
    std::uint32_t steps = 64;
    std::uint32_t repeats = 3;
    std::uint32_t running = 4;
    std::uint32_t prompt_tokens = 1500;
    bool as_json = false;
};

struct Row {
    std::string name;
    double tokens_per_second = 0;
};

// The best of some repeats: other work on the machine only ever slows a run down.
template <class Measure>
double best_of(std::uint32_t repeats, Measure measure) {
    double best = 0;
    for (std::uint32_t i = 0; i < repeats; ++i)
        best = std::max(best, measure().tokens_per_second());
    return best;
}

std::vector<Row> measure_engine(model::Backend& backend, const BenchFlags& flags) {
    std::vector<Row> rows;
    (void)measure_prefill(backend, 64);  // touches the weights once
    for (const auto tokens : flags.prompts)
        rows.push_back({fmt::format("prefill_{}", tokens),
                        best_of(flags.repeats, [&] { return measure_prefill(backend, tokens); })});
    for (const auto streams : flags.streams) {
        if (streams > streams_max(backend, flags.context, flags.steps)) {
            fmt::print(stderr, "troupe: {} streams do not fit; see --kv-memory and --max-running\n",
                       streams);
            continue;
        }
        rows.push_back({fmt::format("decode_{}", streams), best_of(flags.repeats, [&] {
                            return measure_decode(backend, streams, flags.context, flags.steps);
                        })});
    }
    return rows;
}

int bench_engine(const BenchFlags& flags) {
    const auto loaded = load_model(flags.backend.model);
    if (!loaded) return report(loaded.error());
    const auto backend = make_backend(*loaded, flags.backend);
    if (!backend) return report(backend.error());
    const auto& info = (*backend)->info();
    const auto rows = measure_engine(**backend, flags);
    if (flags.as_json) {
        json::object rates;
        for (const auto& row : rows)
            rates[row.name] = row.tokens_per_second;
        const json::object out{{"model", loaded->id},
                               {"backend", info.kind},
                               {"arithmetic", info.arithmetic},
                               {"context", flags.context},
                               {"tokens_per_second", std::move(rates)}};
        std::printf("%s\n", json::serialize(out).c_str());
        return exit_ok;
    }
    fmt::print("{} on {} ({}), context {} while decoding\n", loaded->id, info.kind, info.arithmetic,
               flags.context);
    for (const auto& row : rows)
        fmt::print("  {:<14} {:>9.1f} tokens/s\n", row.name, row.tokens_per_second);
    return exit_ok;
}

int bench_interference(const BenchFlags& flags) {
    const auto loaded = load_model(flags.backend.model);
    if (!loaded) return report(loaded.error());
    const auto backend = make_backend(*loaded, flags.backend);
    if (!backend) return report(backend.error());
    const auto result =
        measure_interference(*loaded, **backend, flags.running, flags.prompt_tokens);
    if (!result) return report(result.error());
    const auto gaps_json = [](const Gaps& gaps) {
        return json::object{{"p50_ms", gaps.p50_ms},
                            {"p99_ms", gaps.p99_ms},
                            {"max_ms", gaps.max_ms},
                            {"count", gaps.count}};
    };
    if (flags.as_json) {
        const json::object out{{"model", loaded->id},
                               {"running", flags.running},
                               {"prompt_tokens", flags.prompt_tokens},
                               {"undisturbed", gaps_json(result->undisturbed)},
                               {"disturbed", gaps_json(result->disturbed)},
                               {"prompt_alone_ms", result->prompt_alone_ms},
                               {"prompt_beside_ms", result->prompt_beside_ms}};
        std::printf("%s\n", json::serialize(out).c_str());
        return exit_ok;
    }
    const auto line = [](const char* name, const Gaps& gaps) {
        fmt::print("  {:<12} p50 {:>6.1f} ms  p99 {:>6.1f} ms  max {:>6.1f} ms  ({} gaps)\n", name,
                   gaps.p50_ms, gaps.p99_ms, gaps.max_ms, gaps.count);
    };
    fmt::print("gaps between tokens of {} streams while a prompt of {} tokens arrives\n",
               flags.running, flags.prompt_tokens);
    line("undisturbed", result->undisturbed);
    line("disturbed", result->disturbed);
    fmt::print("  the prompt's first token: {:.0f} ms alone, {:.0f} ms beside the streams\n",
               result->prompt_alone_ms, result->prompt_beside_ms);
    return exit_ok;
}

}  // namespace

void add_bench(Command& app, Run& run) {
    auto command = app.add_subcommand("bench", "Measure how fast this machine runs a model");
    command.require_subcommand();
    const auto flags = std::make_shared<BenchFlags>();

    auto engine = command.add_subcommand("engine", "Tokens a second of the backend alone");
    add_backend_flags(engine, flags->backend);
    engine.add("--prompts", flags->prompts, "prompt lengths").separated_by(',');
    engine.add("--streams", flags->streams, "streams at once").separated_by(',');
    engine.add("--context", flags->context, "tokens each stream holds already");
    engine.add("--steps", flags->steps, "steps that are timed");
    engine.add("--repeats", flags->repeats, "the best of so many counts");
    engine.add_switch("--json", flags->as_json, "print one JSON object");
    engine.when_chosen([flags, &run] { run = [flags] { return bench_engine(*flags); }; });

    auto interference =
        command.add_subcommand("interference", "Gaps of running streams while a prompt arrives");
    add_backend_flags(interference, flags->backend);
    interference.add("--running", flags->running, "streams that run");
    interference.add("--prompt-tokens", flags->prompt_tokens, "length of the prompt");
    interference.add_switch("--json", flags->as_json, "print one JSON object");
    interference.when_chosen(
        [flags, &run] { run = [flags] { return bench_interference(*flags); }; });
    add_invariance_bench(command, run);
    add_machine_bench(command, run);
    add_sampling_bench(command, run);
    add_scheduler_bench(command, run);
    add_speculation_bench(command, run);
    add_sharing_bench(command, run);
    add_gateway_bench(command, run);
}

}  // namespace troupe::tools
