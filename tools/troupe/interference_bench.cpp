#include "tools/troupe/interference_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "runtime/base/random.hpp"

namespace troupe::tools {
namespace {

using Instant = std::chrono::steady_clock::time_point;

double ms_between(Instant from, Instant to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
}

// Notes when tokens come.
class Watcher final : public actors::SessionHandler {
 public:
    void on_event(const actors::SessionEvent& event, const actors::Delivery&) override {
        if (std::holds_alternative<actors::TokenRun>(event))
            arrivals.push_back(std::chrono::steady_clock::now());
        if (const auto* no = std::get_if<actors::Rejected>(&event)) rejected = no->message;
        ended |= std::holds_alternative<actors::Finished>(event) || !rejected.empty();
    }
    void on_delivered() override {}
    void on_shutdown() override {}

    std::vector<Instant> arrivals;
    std::string rejected;
    bool ended = false;
};

Gaps gaps_of(const std::vector<Watcher>& watchers, Instant from, Instant to) {
    std::vector<double> gaps;
    for (const auto& watcher : watchers)
        for (std::size_t i = 1; i < watcher.arrivals.size(); ++i)
            if (watcher.arrivals[i] > from && watcher.arrivals[i - 1] < to)
                gaps.push_back(ms_between(watcher.arrivals[i - 1], watcher.arrivals[i]));
    if (gaps.empty()) return {};
    std::sort(gaps.begin(), gaps.end());
    const auto at = [&](double share) {
        return gaps[static_cast<std::size_t>(share * static_cast<double>(gaps.size() - 1))];
    };
    return {gaps.size(), at(0.5), at(0.99), gaps.back()};
}

std::vector<model::TokenId> random_prompt(std::uint32_t tokens, std::int32_t vocabulary,
                                          std::uint64_t seed) {
    Random random(seed);
    std::vector<model::TokenId> prompt(tokens);
    for (auto& id : prompt)
        id = static_cast<model::TokenId>(random.below(static_cast<std::uint64_t>(vocabulary)));
    return prompt;
}

}  // namespace

Result<Interference> measure_interference(const LoadedModel& loaded, model::Backend& backend,
                                          std::uint32_t running, std::uint32_t prompt_tokens) {
    LocalEngine engine(loaded, backend);
    const auto vocabulary = loaded.tokenizer->vocabulary_size();
    const auto start = [&](Watcher& watcher, std::uint32_t tokens, std::int32_t answer,
                           std::uint64_t seed) {
        model::DecodingParams params;
        params.temperature = 0;
        params.ignore_eos = true;
        params.max_tokens = answer;
        return engine.submit(watcher, random_prompt(tokens, vocabulary, seed), params);
    };
    const auto run_until = [&](const auto& condition) {
        while (!condition())
            engine.run_one();
    };
    Interference result;

    Watcher alone;
    auto asked = std::chrono::steady_clock::now();
    start(alone, prompt_tokens, 1, 1);
    run_until([&] { return alone.ended; });
    if (!alone.rejected.empty()) return invalid_input(alone.rejected);
    result.prompt_alone_ms = ms_between(asked, alone.arrivals.front());

    constexpr std::size_t kWarm = 8, kCounted = 100;
    std::vector<Watcher> streams(running);
    for (std::uint32_t i = 0; i < running; ++i)
        start(streams[i], 64, 4000, 100 + i);
    const auto all_have = [&](std::size_t count) {
        return std::all_of(streams.begin(), streams.end(),
                           [&](const Watcher& w) { return w.arrivals.size() >= count || w.ended; });
    };
    run_until([&] { return all_have(kWarm); });
    const auto quiet_from = std::chrono::steady_clock::now();
    run_until([&] { return all_have(kWarm + kCounted); });

    Watcher prompt;
    asked = std::chrono::steady_clock::now();
    start(prompt, prompt_tokens, 1, 2);
    run_until([&] { return prompt.ended; });
    const auto answered = std::chrono::steady_clock::now();
    result.prompt_beside_ms = ms_between(asked, prompt.arrivals.front());
    result.undisturbed = gaps_of(streams, quiet_from, asked);
    result.disturbed = gaps_of(streams, asked, answered);
    engine.cancel_all();
    run_until([&] { return all_have(std::size_t(-1)); });
    return result;
}

}  // namespace troupe::tools
