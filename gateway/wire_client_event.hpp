// Reads what a WebSocket client sends, and the body of POST /v1/responses, which is the same create
// without a type. Pure; any thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "gateway/json_document.hpp"
#include "gateway/served_model.hpp"

namespace troupe::gateway {

// A create that is well-formed. `seed_given` false: the shell draws a seed. It also makes a time of
// `deadline`, which counts from the request's arrival.
struct WireCreate {
    actors::CreateRequest request;
    bool seed_given = false;
    std::optional<std::chrono::milliseconds> deadline;
    bool stream = false;  // HTTP only; a socket always streams
};

// A create that must be refused, in the order of its lane.
struct RefusedCreate {
    std::optional<std::string> stream_id;
    std::string event_id;
    actors::RequestError error;
};

struct WirePing {
    std::string t_json;
};
struct WireAuth {
    std::string token;
};
struct WireSteer {
    std::optional<std::string> stream_id;
    std::string response_id;
    std::string event_id;
};

// A message that is not even an event. `malformed`: counts towards closing with 4400.
struct RefusedMessage {
    actors::RequestError error;
    std::string event_id;
    bool malformed = false;
};

using ClientEvent =
    std::variant<WireCreate, RefusedCreate, actors::ResumeRequest, actors::CancelRequest, WirePing,
                 WireAuth, WireSteer, RefusedMessage>;

// Never fails: what is wrong with a message is part of the value.
[[nodiscard]] ClientEvent read_client_event(std::string_view text, const ServedModel& served);

// The body of POST /v1/responses.
[[nodiscard]] WireResult<WireCreate> read_create_body(std::string_view body,
                                                      const ServedModel& served);

// 1-256 of [A-Za-z0-9_.-].
[[nodiscard]] bool is_stream_id(std::string_view text);

}  // namespace troupe::gateway
