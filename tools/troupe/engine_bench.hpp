// Measures a Backend by itself, without scheduler or sockets: prefill and decode in tokens a
// second. Works on any model::Backend; runs on the caller's thread. Slots and pages are used from 0
// up, so nothing else may use the backend meanwhile; all slots are closed again at the end.
#pragma once

#include <cstdint>

#include "model/backend.hpp"

namespace troupe::tools {

struct EngineRate {
    std::uint64_t tokens = 0;  // computed within the time
    double seconds = 0;
    double processor_seconds = 0;  // of all threads, spinning included
    double idle_seconds = 0;       // median between steps, of a backend that measures it

    [[nodiscard]] double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
};

// One prompt of `tokens` random tokens in steps as large as the backend takes, one draw at its end.
[[nodiscard]] EngineRate measure_prefill(model::Backend& backend, std::uint32_t tokens);

// `streams` sequences that hold `context` random tokens each, then `steps` greedy steps of one
// token a stream, planned one step ahead as the scheduler does. Only the steps are timed.
[[nodiscard]] EngineRate measure_decode(model::Backend& backend, std::uint32_t streams,
                                        std::uint32_t context, std::uint32_t steps);

// The most streams whose context + steps tokens fit the backend's slots and pages.
[[nodiscard]] std::uint32_t streams_max(const model::Backend& backend, std::uint32_t context,
                                        std::uint32_t steps);

}  // namespace troupe::tools
