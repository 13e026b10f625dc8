// Every message between actors, grouped by who receives it. All are plain values, movable without
// throwing; one variant a mailbox. Nothing here points into another actor's state, except the two
// objects made to be shared: the stop flag (atomic) and the step's plan and result, which have one
// owner at a time and travel back and forth.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "actors/stored_response.hpp"
#include "model/decoding_params.hpp"
#include "model/step.hpp"
#include "model/token.hpp"
#include "runtime/clock.hpp"
#include "runtime/stop_flag.hpp"

namespace troupe::actors {

using RequestId = std::uint64_t;  // unique in the process, never reused
using SessionId = std::uint64_t;  // unique within its hub, never reused

// Where a request's events go. A session that is gone by then is normal: counted and dropped.
struct SessionRef {
    std::uint32_t hub = 0;
    SessionId session = 0;
    friend bool operator==(const SessionRef&, const SessionRef&) = default;
};

// On whose account work is done: an API key, else a cookie, else an address. `id` is a keyed hash.
struct Principal {
    std::uint64_t id = 0;
    double weight = 1.0;                    // a share twice as large counts half
    std::uint32_t requests_per_minute = 0;  // 0: no limit
    std::uint32_t tokens_per_minute = 0;    // of prompts and answers; 0: no limit
    friend bool operator==(const Principal&, const Principal&) = default;
};

enum class FinishReason : std::uint8_t {
    stop,       // an end token, a stop string or a stop token
    length,     // the token limit, or the context is full
    cancelled,  // by its client, or because the client went away
    deadline,
    shutdown,  // the server is going down
    error,
};
inline constexpr std::size_t kFinishReasons = 6;

[[nodiscard]] std::string_view to_string(FinishReason reason);

// What ended an answer with FinishReason::stop.
struct StopCause {
    std::int32_t stop_string = -1;   // index into DecodingParams::stop, or -1
    model::TokenId stop_token = -1;  // the end or stop token, or -1; it is not part of the answer
    friend bool operator==(const StopCause&, const StopCause&) = default;
};

struct Usage {
    std::uint32_t prompt_tokens = 0;
    std::uint32_t cached_tokens = 0;     // of the prompt, not computed again
    std::uint32_t generated_tokens = 0;  // end tokens included
    std::uint32_t draft_tokens = 0;      // proposed, by prompt lookup or a draft model
    std::uint32_t accepted_tokens = 0;   // of them, those that the model itself has drawn
    friend bool operator==(const Usage&, const Usage&) = default;
};

// ---- to the Scheduler ---------------------------------------------------------------------------

struct Submit {
    SessionRef reply_to;
    RequestId request = 0;
    std::vector<model::TokenId> prompt;  // not empty; the edge has checked ids and length
    model::DecodingParams params;
    std::uint32_t answer_index = 0;  // which of n answers of one call; part of the seed
    std::uint32_t answers = 1;       // of a beam search: its best, as `request`, `request` + 1, …
    Principal principal;
    std::uint64_t cache_salt = 0;     // prefixes are shared only under equal salts
    std::uint32_t shared_tokens = 0;  // leading tokens declared common to all: no salt
    bool prefill_only = false;        // warm the prefix, draw nothing
    bool score_prompt = false;        // with prefill_only: tell how likely each of its tokens was
    std::optional<runtime::TimePoint> deadline;
    std::shared_ptr<runtime::StopFlag> stop;  // set by the session to end the work at the next plan
};

// The control lane. Wakes the scheduler; what counts is the request's stop flag, set before.
struct Cancel {
    RequestId request = 0;
};

// The executor has finished a step; both objects come home.
struct StepDone {
    std::unique_ptr<model::StepPlan> plan;
    std::unique_ptr<model::StepResult> result;
};

// The backend is broken: the engine group ends with `message` for every live request.
struct ExecutorFailed {
    std::string message;
};

// Finish what runs until `drain_until`, refuse what is new, then end.
struct SchedulerShutdown {
    runtime::TimePoint drain_until;
};

using SchedulerMessage = std::variant<Submit, Cancel, StepDone, ExecutorFailed, SchedulerShutdown>;

// ---- to the Executor ----------------------------------------------------------------------------

struct RunStep {
    std::unique_ptr<model::StepPlan> plan;
    std::unique_ptr<model::StepResult> result;  // empty, to be filled
};

struct ExecutorShutdown {};

using ExecutorMessage = std::variant<RunStep, ExecutorShutdown>;

// ---- to the Storage -----------------------------------------------------------------------------

// Where a call's reply goes: a StorageReply with the same ticket.
struct StorageCall {
    std::uint32_t hub = 0;
    std::uint64_t ticket = 0;
};

struct StoragePut {
    StorageCall call;
    StoredResponse response;
};

struct StorageFind {
    StorageCall call;
    std::string id;
    std::uint64_t principal = 0;
};

struct StorageErase {
    StorageCall call;
    std::string id;
    std::uint64_t principal = 0;
};

using StorageMessage = std::variant<StoragePut, StorageFind, StorageErase>;

// ---- to a SessionHub ----------------------------------------------------------------------------

// The request waits; sent when its place changes, at most a few times a second.
struct Queued {
    SessionId session = 0;
    RequestId request = 0;
    std::uint32_t position = 0;  // 0: next
};

// The prompt is being computed.
struct PromptProgress {
    SessionId session = 0;
    RequestId request = 0;
    std::uint32_t prompt_done = 0;
    std::uint32_t prompt_total = 0;
    std::uint32_t cached = 0;
};

// Newly drawn tokens, in order, none missing: `Delivery::tokens[begin, begin + count)`. A run never
// holds the end token that finishes an answer; it does hold the tokens of a stop string.
struct TokenRun {
    SessionId session = 0;
    RequestId request = 0;
    std::uint32_t first_index = 0;  // place of the first in the answer
    std::uint32_t begin = 0;
    std::uint32_t count = 0;
};

// How likely the prompt's own tokens were, from its second on; in order, none missing.
struct PromptScores {
    SessionId session = 0;
    RequestId request = 0;
    std::uint32_t first_index = 0;  // place of the first in the prompt
    std::uint32_t begin = 0;        // in Delivery::tokens
    std::uint32_t count = 0;
};

// The one terminal event of a request that was accepted.
struct Finished {
    SessionId session = 0;
    RequestId request = 0;
    FinishReason reason = FinishReason::stop;
    StopCause cause;
    Usage usage;
    std::int64_t queued_ns = 0;   // from Submit to the first plan that held it
    std::int64_t prefill_ns = 0;  // from there to the first token
    std::int64_t decode_ns = 0;   // from there to the end
    std::string error;            // with FinishReason::error: for people
};

// The one terminal event of a request that was not.
struct Rejected {
    SessionId session = 0;
    RequestId request = 0;
    enum class Reason : std::uint8_t { overloaded, never_fits, too_wide, shutting_down } reason{};
    std::string message;
    std::int64_t retry_after_ms = 0;
};

using SessionEvent =
    std::variant<Queued, PromptProgress, TokenRun, PromptScores, Finished, Rejected>;

class SpareDeliveries;

// All that a step has for one hub: one message, one wake-up.
struct Delivery {
    std::vector<SessionEvent> events;
    std::vector<model::SampledToken> tokens;  // top_begin counts into `top`
    std::vector<model::TokenLogprob> top;
    std::shared_ptr<SpareDeliveries> home;  // where to give it back

    void clear() {
        events.clear();
        tokens.clear();
        top.clear();
    }
};

struct HubShutdown {
    runtime::TimePoint drain_until;
};

// A put or an erasure is on the disk, or could not be done; what was looked for, where it is there.
struct StorageReply {
    std::uint64_t ticket = 0;
    bool done = false;
    std::optional<StoredResponse> response;
};

using HubMessage = std::variant<Delivery, HubShutdown, StorageReply>;

}  // namespace troupe::actors
