// Measures promise 2: what a long prompt does to streams that are running, through the whole
// engine.
#pragma once

#include <cstdint>

#include "tools/troupe/local_engine.hpp"

namespace troupe::tools {

// Times between deliveries of one stream, all streams pooled.
struct Gaps {
    std::size_t count = 0;
    double p50_ms = 0;
    double p99_ms = 0;
    double max_ms = 0;
};

struct Interference {
    Gaps undisturbed;             // before the prompt comes
    Gaps disturbed;               // between its arrival and its first token
    double prompt_alone_ms = 0;   // its time to first token with nobody else
    double prompt_beside_ms = 0;  // and beside the streams
};

[[nodiscard]] Result<Interference> measure_interference(const LoadedModel& loaded,
                                                        model::Backend& backend,
                                                        std::uint32_t running,
                                                        std::uint32_t prompt_tokens);

}  // namespace troupe::tools
