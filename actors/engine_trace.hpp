// What the engine's lane notes for /debug/trace: arrivals, the parts of steps, and the phases of
// requests' lives. Written by the engine's shell on the engine lane.
#pragma once

#include <span>
#include <string_view>

#include "actors/messages.hpp"
#include "runtime/clock.hpp"
#include "runtime/trace.hpp"

namespace troupe::actors {

// The track of requests' phases; `first` of its events is the RequestId.
inline constexpr std::string_view kRequestTrack = "requests";

// Before the scheduler takes them: requests that arrive, and steps that are done, on the track of
// `executor`, whose time is the backend's own.
void trace_messages(runtime::Trace& trace, std::string_view executor, runtime::TimePoint now,
                    std::span<const SchedulerMessage> messages);

// Before the delivery is sent: what has become of those that end in it.
void trace_endings(runtime::Trace& trace, runtime::TimePoint now, const Delivery& delivery);

}  // namespace troupe::actors
