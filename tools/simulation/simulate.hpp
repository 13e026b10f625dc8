// The whole engine against fake clients and a fake model, on one OS thread in virtual time, with
// faults chosen by seed: what `troupe simulate` and tests/sim run. Production types unchanged;
// after every step of the scheduler all books are checked, at the end every answer is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::simulation {

struct Options {
    bool faults = true;
    std::uint32_t requests = 40;  // at least; a burst may bring some more
};

struct Report {
    std::uint64_t seed = 0;
    std::uint64_t digest = 0;  // of everything that happened, in order: equal for equal seeds
    std::uint32_t requests = 0;
    std::uint64_t tokens = 0;  // heard by clients
    std::uint64_t steps = 0;
    std::uint64_t preemptions = 0;
    std::uint64_t restarts = 0;
    std::uint64_t prefix_hit_tokens = 0;
    std::uint64_t draft_tokens = 0;
    std::uint64_t accepted_tokens = 0;  // of them
    std::int64_t virtual_ms = 0;
    std::vector<std::string> failures;  // in words; empty when all is well
    std::string description;            // the seed and its faults
    std::string trace;                  // the last events, where something failed
};

[[nodiscard]] Report simulate(std::uint64_t seed, const Options& options = {});

}  // namespace troupe::simulation
