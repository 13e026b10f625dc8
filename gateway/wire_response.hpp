// Writes Responses objects and events, field by field as protocol.md §3 lists them. Appends to one
// buffer that is reused from frame to frame. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "actors/session_events.hpp"
#include "gateway/served_model.hpp"

namespace troupe::gateway {

// "response.output_text.delta" and the like: the value of `type`.
[[nodiscard]] std::string_view event_type(const actors::ServerEvent& event);

// Appends the event as one JSON object.
void append_event(std::string& out, const actors::ServerEvent& event, const ServedModel& served);

// Appends the response object, all keys always.
void append_response(std::string& out, const actors::Response& response, const ServedModel& served);

}  // namespace troupe::gateway
