// The values that go into and come out of a Responses session: what a client asks for, what it is
// told, and what the session asks of its shell. No JSON here: the gateway reads and writes that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actors/messages.hpp"
#include "model/chat_message.hpp"
#include "model/decoding_params.hpp"
#include "runtime/base/result.hpp"

namespace troupe::actors {

struct SessionLimits {
    std::size_t in_flight_max = 16;    // responses at work at once
    std::size_t named_lanes_max = 32;  // lanes with something queued, at work or to chain from
    std::size_t queued_max = 64;       // creates that wait for their lane
};

// Why a request failed, as every door says it (protocol.md §7). `status` is the HTTP status.
struct RequestError {
    unsigned status = 500;
    std::string code = "server_error";
    std::string message;
    std::string param;                // the field at fault; empty: none
    std::int64_t retry_after_ms = 0;  // 0: not said
    friend bool operator==(const RequestError&, const RequestError&) = default;
};

// ---- from the client ----------------------------------------------------------------------------

// Fields of a create that only come back in its response object: JSON text, opaque to actors.
struct EchoedFields {
    std::string model;
    std::string instructions = "null";
    std::string tools = "[]";
    std::string tool_choice = R"("auto")";
    std::string text = R"({"format":{"type":"text"}})";
    std::string reasoning = "null";
    std::string metadata = "{}";
    std::string max_tool_calls = "null";
    std::string parallel_tool_calls = "true";
    std::string safety_identifier = "null";
    std::string prompt_cache_key = "null";
    std::string service_tier = R"("default")";
    friend bool operator==(const EchoedFields&, const EchoedFields&) = default;
};

// How a conversation is made to fit the context.
struct PromptFit {
    bool drop_old_turns = false;      // else a prompt that is too long is refused
    std::int32_t answer_tokens = -1;  // asked for; below 0: no limit
};

struct CreateRequest {
    std::optional<std::string> stream_id;  // none: the default lane
    std::string event_id;                  // echoed in an error
    std::string previous_response_id;      // empty: none
    std::optional<std::string> instructions;
    std::vector<model::ChatMessage> input;
    model::DecodingParams params;
    bool generate = true;  // false: warm the prefix and give an id to chain from
    bool store = true;
    bool drop_old_turns = false;  // truncation "auto"
    std::optional<runtime::TimePoint> deadline;
    bool background = false;  // goes on to its end without a reader
    EchoedFields echoed;
};

// A reader that comes back, or a further one.
struct ResumeRequest {
    std::optional<std::string> stream_id;  // the lane in which it reads
    std::string event_id;
    std::string response_id;
    std::uint64_t next_sequence = 0;  // the first event it has not seen
    bool snapshot = false;            // the text so far in one event, then what follows
};

// Neither id: the active response of the default lane.
struct CancelRequest {
    std::string response_id;
    std::optional<std::string> stream_id;
    std::string event_id;
};

// ---- to the client ------------------------------------------------------------------------------

enum class ResponseStatus : std::uint8_t {
    queued,
    in_progress,
    completed,
    incomplete,
    failed,
    cancelled,
};

// A token of the answer with its log-probability and those of its rivals.
struct TokenScore {
    model::TokenId id = 0;
    float logprob = 0;
    std::vector<model::TokenLogprob> top;
};

struct Timings {
    std::int64_t queued_ns = 0;
    std::int64_t prefill_ns = 0;
    std::int64_t decode_ns = 0;
    friend bool operator==(const Timings&, const Timings&) = default;
};

// What a create was, for every response object that shows it. Shared, const.
struct ResponseSettings {
    std::string previous_response_id;
    model::DecodingParams params;
    bool store = true;
    bool drop_old_turns = false;
    bool background = false;
    EchoedFields echoed;
};

// A response object's state at one moment.
struct Response {
    std::string id;
    std::string item_id;
    std::int64_t created_at = 0;    // Unix seconds
    std::int64_t completed_at = 0;  // 0: not yet
    ResponseStatus status = ResponseStatus::in_progress;
    std::shared_ptr<const ResponseSettings> settings;
    bool has_output = false;  // the message item exists
    std::string text;
    std::vector<TokenScore> scores;
    std::optional<FinishReason> finish_reason;
    StopCause cause;
    std::optional<RequestError> error;
    Usage usage;
    Timings timings;
    std::uint32_t dropped_messages = 0;  // of the conversation, to fit the context
    bool system_in_user = false;         // the template has no system role: users told its text
};

// response.created, .queued, .in_progress, .completed, .incomplete, .failed
struct ResponseChanged {
    enum class Kind : std::uint8_t { created, queued, in_progress, completed, incomplete, failed };
    Kind kind = Kind::created;
    Response response;
    std::optional<std::uint32_t> queue_position;
    std::optional<PromptProgress> progress;
};

// The terminal event of a response that is only kept, no longer live.
struct StoredEnd {
    bool completed = true;  // else incomplete
    std::string response_json;
};

struct ItemAdded {
    std::string item_id;
};
struct PartAdded {
    std::string item_id;
};
struct TextDelta {
    std::string item_id;
    std::string delta;
    std::vector<TokenScore> scores;
};
struct TextDone {
    std::string item_id;
    std::string text;
    std::vector<TokenScore> scores;
};
struct PartDone {
    std::string item_id;
    std::string text;
    std::vector<TokenScore> scores;
};
struct ItemDone {
    std::string item_id;
    std::string text;
    std::vector<TokenScore> scores;
    bool completed = true;  // else incomplete
};
struct ErrorEvent {
    RequestError error;
    std::string event_id;
};
struct Pong {
    std::string t_json;  // what the ping carried, as JSON text
};
struct SteerFailed {
    std::string response_id;
    std::string event_id;
};

struct ServerEvent {
    std::optional<std::string> stream_id;  // iff the create had one
    std::uint64_t sequence_number = 0;     // per response
    std::variant<TextDelta, ResponseChanged, StoredEnd, ItemAdded, PartAdded, TextDone, PartDone,
                 ItemDone, ErrorEvent, Pong, SteerFailed>
        body;  // first the one that is there for every token
};

// ---- to the shell -------------------------------------------------------------------------------

// Make tokens of a conversation, then call Session::prepared with the same ticket.
struct PreparePrompt {
    std::uint64_t ticket = 0;
    std::vector<model::ChatMessage> messages;
    PromptFit fit;
};

// Look for a kept response of the session's principal, then call Session::found.
struct FindStored {
    std::uint64_t ticket = 0;
    std::string id;
};

using SessionAction = std::variant<PreparePrompt, FindStored>;

// The shell's answer: tokens, the names under which they will be worked on, and the time. An error
// goes to the client as it is.
struct PreparedPrompt {
    std::uint64_t ticket = 0;
    std::vector<model::TokenId> tokens;
    std::uint32_t dropped_messages = 0;
    bool system_in_user = false;
    std::optional<RequestError> error;
    RequestId request = 0;
    std::string id_suffix;  // >= 128 random bits as hex: resp_<suffix>, msg_<suffix>
    std::int64_t unix_seconds = 0;
};

}  // namespace troupe::actors
