// How a RequestError looks on the wire, over HTTP and as a WebSocket event. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "actors/session_events.hpp"

namespace troupe::gateway {

// "invalid_request_error", "rate_limit_error", ...: OpenAI's type for a status.
[[nodiscard]] std::string_view error_type(unsigned status);

// Appends {"message", "type", "param", "code"}: the value of "error" over HTTP.
void append_error_object(std::string& out, const actors::RequestError& error);

// {"error": {...}}: the body of an HTTP reply.
[[nodiscard]] std::string error_body(const actors::RequestError& error);

// Appends a WebSocket error event: a superset that both public schemas accept.
void append_error_event(std::string& out, const actors::RequestError& error,
                        std::string_view event_id, const std::optional<std::string>& stream_id,
                        std::uint64_t sequence_number);

// Retry-After in whole seconds, rounded up; empty where the error does not say.
[[nodiscard]] std::string retry_after_seconds(const actors::RequestError& error);

}  // namespace troupe::gateway
