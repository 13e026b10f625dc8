// Every queue's capacity and every limit of the actors, as sums over who fills them. Limits that a
// person may change are settings with these defaults; a full queue behind them is a bug and
// asserts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/mailbox.hpp"

namespace troupe::actors::limits {

// Requests that hubs have between their Submit and their terminal event, over all hubs. The edge
// refuses what would be more.
inline constexpr std::size_t kRequestsLiveMax = 16'384;

// Requests that may wait for a slot: the first is a setting, the second its share for one
// principal.
inline constexpr std::uint32_t kWaitingMax = 512;
inline constexpr std::uint32_t kWaitingPerPrincipalMax = 128;

// Principals whose served tokens are remembered; beyond, those with nothing in flight are
// forgotten.
inline constexpr std::size_t kPrincipalsRemembered = 4'096;

// Backend::submit's own bound.
inline constexpr std::uint32_t kStepsInFlightMax = 2;

// Admissions asked of the prefix cache in one step: enough to fill a machine in a few steps, few
// enough that a step in which nobody fits costs little.
inline constexpr std::size_t kAdmissionsPerStep = 32;

// Calls of one hub that are with the storage. A put beyond them is not kept, and its client told
// so.
inline constexpr std::size_t kStorageCallsMax = 16'384;

// Waiting clients hear of their place, and clients of long prompts of their progress, this often.
inline constexpr std::int64_t kNewsInterval_ms = 250;

[[nodiscard]] constexpr runtime::MailboxCapacity scheduler_mailbox() {
    return {
        .normal_max = kRequestsLiveMax     // one Submit each
                      + kStepsInFlightMax  // StepDone
                      + 1,                 // ExecutorFailed
        .control_max = kRequestsLiveMax    // one Cancel each: sent by whoever set the stop flag
                       + 2,  // SchedulerShutdown: the first, and one with less patience
    };
}

[[nodiscard]] constexpr runtime::MailboxCapacity executor_mailbox() {
    return {
        .normal_max = kStepsInFlightMax    // RunStep of the engine
                      + kStepsInFlightMax  // those that a failed engine left behind
                      + 1,                 // ExecutorShutdown
        .control_max = 0,
    };
}

[[nodiscard]] constexpr runtime::MailboxCapacity storage_mailbox(std::size_t hubs) {
    return {.normal_max = hubs * kStorageCallsMax, .control_max = 0};
}

// Messages of one hub. No delivery is empty, so there are no more than events: a request has at
// most one TokenRun for each token of its answer, and some news on the way.
[[nodiscard]] constexpr runtime::MailboxCapacity hub_mailbox(std::uint32_t context_length) {
    return {
        .normal_max = kRequestsLiveMax * (std::size_t{context_length}  // TokenRun
                                          + 64                         // Queued, PromptProgress
                                          + 1)                         // Finished or Rejected
                      + kStorageCallsMax,                              // StorageReply
        .control_max = 2,  // HubShutdown: the first, and one with less patience
    };
}

}  // namespace troupe::actors::limits
