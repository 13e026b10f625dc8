// troupe simulate: the engine in the deterministic simulator, seed after seed.
#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cstdio>
#include <memory>

#include "runtime/base/log.hpp"
#include "tools/simulation/simulate.hpp"
#include "tools/troupe/command.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

struct SimulateFlags {
    std::string seeds = "1..100";
    simulation::Options options;
    bool no_faults = false;
    bool as_json = false;
};

struct SeedRange {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
};

// "7" or "1..500".
Result<SeedRange> parse_seeds(const std::string& text) {
    SeedRange range;
    const char* end = text.data() + text.size();
    auto parsed = std::from_chars(text.data(), end, range.first);
    range.last = range.first;
    if (parsed.ec == std::errc() && end - parsed.ptr > 2 && std::string_view(parsed.ptr, 2) == "..")
        parsed = std::from_chars(parsed.ptr + 2, end, range.last);
    if (parsed.ec != std::errc() || parsed.ptr != end || range.last < range.first)
        return invalid_input(fmt::format("--seeds {}: wants a seed, or FIRST..LAST", text));
    return range;
}

json::object to_json(const simulation::Report& report) {
    json::array failures;
    for (const auto& failure : report.failures)
        failures.push_back(json::value(failure));
    return {{"seed", report.seed},
            {"digest", fmt::format("{:016x}", report.digest)},
            {"requests", report.requests},
            {"tokens", report.tokens},
            {"steps", report.steps},
            {"preemptions", report.preemptions},
            {"draft_tokens", report.draft_tokens},
            {"accepted_tokens", report.accepted_tokens},
            {"restarts", report.restarts},
            {"virtual_ms", report.virtual_ms},
            {"failures", std::move(failures)}};
}

int simulate(SimulateFlags flags) {
    const auto seeds = parse_seeds(flags.seeds);
    if (!seeds) return report(seeds.error());
    flags.options.faults = !flags.no_faults;
    log::set_up(log::Level::off);  // faults that were planted are no news
    std::uint64_t failed = 0, requests = 0, steps = 0;
    for (std::uint64_t seed = seeds->first; seed <= seeds->last; ++seed) {
        const auto result = simulation::simulate(seed, flags.options);
        requests += result.requests;
        steps += result.steps;
        if (flags.as_json) std::printf("%s\n", json::serialize(to_json(result)).c_str());
        if (result.failures.empty()) continue;
        ++failed;
        fmt::print(stderr, "seed {} failed ({})\n", seed, result.description);
        for (const auto& failure : result.failures)
            fmt::print(stderr, "  {}\n", failure);
        fmt::print(stderr, "{}\n", result.trace);
    }
    if (!flags.as_json)
        fmt::print("{} seeds, {} requests, {} steps: {} failed\n", seeds->last - seeds->first + 1,
                   requests, steps, failed);
    return failed == 0 ? exit_ok : exit_failed;
}

}  // namespace

void add_simulate(Command& app, Run& run) {
    auto command = app.add_subcommand("simulate", "Run the engine in the deterministic simulator");
    const auto flags = std::make_shared<SimulateFlags>();
    command.add("--seeds", flags->seeds, "a seed, or FIRST..LAST").shows_default();
    command.add("--requests", flags->options.requests, "requests of a seed, about").shows_default();
    command.add_switch("--no-faults", flags->no_faults, "no faults, only interleavings");
    command.add_switch("--json", flags->as_json, "print one JSON object a seed");
    command.when_chosen([flags, &run] { run = [flags] { return simulate(*flags); }; });
}

}  // namespace troupe::tools
