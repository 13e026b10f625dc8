// Times model::sample on rows that look like a language model's: most scores far below, a few near
// the top. Every draw has a row of its own, prepared before the clock starts, as sampling
// overwrites it and a row that was just computed lies in the cache.
#include "tools/troupe/sampling_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numbers>
#include <vector>

#include "model/sampler.hpp"
#include "runtime/base/random.hpp"

namespace troupe::tools {
namespace {

namespace json = boost::json;

constexpr std::uint32_t kRows = 4;  // with their originals in the second-level cache
constexpr std::uint32_t kHistoryTokens = 500;

struct SamplingFlags {
    std::uint32_t vocabulary = 49152;
    std::uint32_t draws = 4000;
    bool as_json = false;
};

struct Setting {
    const char* name;
    model::DecodingParams params;
};

std::vector<Setting> settings() {
    model::DecodingParams greedy, plain, truncated, penalised, scored;
    greedy.temperature = 0;
    plain.temperature = 0.8;
    truncated = plain;
    truncated.top_k = 40;
    truncated.top_p = 0.95;
    penalised = truncated;
    penalised.repetition_penalty = 1.1;
    scored = truncated;
    scored.logprobs = true;
    scored.top_logprobs = 5;
    return {{"greedy", greedy},
            {"temperature 0.8", plain},
            {"top-k 40, top-p 0.95", truncated},
            {"and a repetition penalty", penalised},
            {"and 5 log-probabilities", scored}};
}

// Normal scores with a spread of 3 (Box and Muller), and thirty that stand out.
std::vector<float> make_row(std::uint32_t vocabulary, Random& random) {
    std::vector<float> row(vocabulary);
    for (float& z : row) {
        const double radius = std::sqrt(-2 * std::log(1 - random.unit()));
        z = static_cast<float>(3 * radius * std::cos(2 * std::numbers::pi * random.unit()));
    }
    for (int i = 0; i < 30; ++i)
        row[random.below(vocabulary)] = static_cast<float>(12 + 8 * random.unit());
    return row;
}

// Microseconds a draw: the best of batches of kRows, as other work only ever slows one down.
double measure(const model::DecodingParams& params, const SamplingFlags& flags) {
    Random random(1);
    std::vector<std::vector<float>> originals;
    for (std::uint32_t i = 0; i < kRows; ++i)
        originals.push_back(make_row(flags.vocabulary, random));
    model::TokenCounts counts;
    for (std::uint32_t i = 0; i < kHistoryTokens; ++i)
        counts.add_prompt(static_cast<model::TokenId>(random.below(flags.vocabulary)));
    model::SamplerScratch scratch;
    std::vector<model::TokenLogprob> top;
    std::vector<std::vector<float>> rows = originals;
    double best_us = HUGE_VAL;
    for (std::uint32_t done = 0; done < flags.draws; done += kRows) {
        for (std::uint32_t i = 0; i < kRows; ++i)
            std::copy(originals[i].begin(), originals[i].end(), rows[i].begin());
        const auto begin = std::chrono::steady_clock::now();
        for (std::uint32_t i = 0; i < kRows; ++i) {
            top.clear();
            const model::SamplingContext context{
                .params = params,
                .counts = &counts,
                .end_tokens = {},
                .answer_index = 0,
                .answer_length = done + i,
                .position = done + i,
            };
            (void)model::sample(rows[i], context, scratch, top);
        }
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - begin;
        best_us = std::min(best_us, took.count() / kRows);
    }
    return best_us;
}

int bench_sampling(const SamplingFlags& flags) {
    json::object costs;
    if (!flags.as_json)
        fmt::print("one draw over {} tokens, {} seen before\n", flags.vocabulary, kHistoryTokens);
    for (const auto& [name, params] : settings()) {
        const double us = measure(params, flags);
        costs[name] = us;
        if (!flags.as_json) fmt::print("  {:<26} {:>7.2f} us\n", name, us);
    }
    if (flags.as_json) {
        const json::object out{{"vocabulary", flags.vocabulary}, {"us", std::move(costs)}};
        std::printf("%s\n", json::serialize(out).c_str());
    }
    return exit_ok;
}

}  // namespace

void add_sampling_bench(Command& bench, Run& run) {
    const auto flags = std::make_shared<SamplingFlags>();
    auto sampling = bench.add_subcommand("sampling", "Microseconds to draw one token");
    sampling.add("--vocabulary", flags->vocabulary, "entries of a row").within(1000, 1 << 20);
    sampling.add("--draws", flags->draws, "draws a setting").positive();
    sampling.add_switch("--json", flags->as_json, "print one JSON object");
    sampling.when_chosen([flags, &run] { run = [flags] { return bench_sampling(*flags); }; });
}

}  // namespace troupe::tools
