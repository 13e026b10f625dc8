// The whole engine by seed: each seed is another interleaving, workload and set of faults. A
// failure prints its seed; `troupe simulate --seeds N..N` repeats it.
#include <catch2/catch.hpp>
#include <set>

#include "runtime/base/log.hpp"
#include "tools/simulation/simulate.hpp"

namespace troupe::simulation {
namespace {

constexpr std::uint64_t kSeeds = 500;

// Engines that fail on purpose say so in the log.
const bool quiet = [] {
    log::set_up(log::Level::off);
    return true;
}();

TEST_CASE("every seed keeps every rule", "[sim]") {
    std::uint64_t preemptions = 0, restarts = 0, hits = 0, tokens = 0, drafts = 0, accepted = 0;
    std::set<std::uint64_t> digests;
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        const Report report = simulate(seed);
        INFO(report.description << "\n" << report.trace);
        REQUIRE(report.failures == std::vector<std::string>{});
        digests.insert(report.digest);
        preemptions += report.preemptions;
        restarts += report.restarts;
        hits += report.prefix_hit_tokens;
        tokens += report.tokens;
        drafts += report.draft_tokens;
        accepted += report.accepted_tokens;
    }
    REQUIRE(digests.size() == kSeeds);
    // The suite reaches what it is there for.
    REQUIRE(preemptions > kSeeds / 5);
    REQUIRE(restarts > kSeeds / 5);
    REQUIRE(hits > kSeeds * 100);
    REQUIRE(tokens > kSeeds * 100);
    REQUIRE(accepted > kSeeds * 10);
    REQUIRE(drafts - accepted > kSeeds * 10);
}

TEST_CASE("the same seed gives the same run", "[sim]") {
    for (std::uint64_t seed = 1000; seed < 1030; ++seed) {
        const Report first = simulate(seed);
        const Report second = simulate(seed);
        INFO(first.description);
        REQUIRE(first.digest == second.digest);
        REQUIRE(first.tokens == second.tokens);
        REQUIRE(first.steps == second.steps);
    }
}

TEST_CASE("without faults nobody is refused an answer for the engine's sake", "[sim]") {
    for (std::uint64_t seed = 2000; seed < 2050; ++seed) {
        const Report report = simulate(seed, {.faults = false});
        INFO(report.description << "\n" << report.trace);
        REQUIRE(report.failures == std::vector<std::string>{});
        REQUIRE(report.restarts == 0);
    }
}

}  // namespace
}  // namespace troupe::simulation
