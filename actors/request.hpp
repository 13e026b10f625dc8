// What the scheduler knows of one live request. Owned by the Scheduler, engine thread.
//
//   waiting --admitted--> running --ended--> leaving --no step names it--> gone
//      ^                     |
//      +--preempted: leaving first, then waiting again, in front of everybody
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "actors/draft_odds.hpp"
#include "actors/messages.hpp"
#include "actors/prefix_cache.hpp"
#include "model/prompt_lookup.hpp"
#include "model/text_stream.hpp"

namespace troupe::actors {

struct BeamGroup;

struct Request {
    enum class State : std::uint8_t { waiting, running, preempting, ended };

    Submit submit;                       // without its prompt, which begins `tokens`
    std::vector<model::TokenId> tokens;  // prompt, then the answer as far as it has been read
    std::uint32_t prompt_length = 0;
    std::uint32_t answer_max = 0;  // tokens
    std::uint64_t arrival = 0;     // counts submits: smaller is older
    State state = State::waiting;

    std::optional<model::TextStream> stop_strings;  // where it has any

    // Beam search: of the client's request while it runs, and of its beams.
    BeamGroup* group = nullptr;
    std::uint32_t beam = 0;           // which of the group's
    std::uint32_t beams_reached = 0;  // the client's: tokens of its beams when it was preempted

    // While it waits.
    std::uint32_t principal = 0;  // index into the WaitingRoom's principals
    Request* ahead = nullptr;     // in its principal's queue
    Request* behind = nullptr;
    PageVersion waits_for;  // somebody else computes its prefix up to this page
    bool was_preempted = false;
    std::uint32_t position_told = 0;
    bool position_known = false;

    // While it runs. Positions below `planned` are in some submitted step; below `written` in a
    // finished one.
    model::SlotId slot = 0;
    LeaseId lease = kNoLease;
    std::uint32_t capacity = 0;  // positions that the lease's pages hold
    std::uint32_t planned = 0;
    std::uint32_t written = 0;
    std::uint32_t published_pages = 0;
    std::uint32_t unread_end = 0;    // pages before it are sinks, or given back behind the window
    std::uint32_t unread_draws = 0;  // planned, result not yet here
    std::uint32_t scores_told = 0;   // of its prompt's tokens, see Submit::score_prompt
    std::uint32_t in_flight = 0;     // submitted steps that name its slot

    // Its drafts: scheduler_drafts.cpp.
    model::PromptLookup lookup;
    DraftOdds draft_odds;
    DraftKind draft_kind{};         // of the latest
    std::uint32_t draft_grant = 0;  // tokens, in the step being made

    // For people.
    std::uint32_t cached_tokens = 0;  // at its first admission
    std::uint32_t generated = 0;      // end tokens included
    std::uint32_t draft_tokens = 0;
    std::uint32_t accepted_tokens = 0;  // of them
    runtime::TimePoint submitted_at;
    runtime::TimePoint planned_at;  // first plan that held it
    runtime::TimePoint first_token_at;
    runtime::TimePoint last_token_at;
    std::optional<runtime::TimePoint> cancelled_at;  // when the scheduler saw it
    runtime::TimePoint progress_told_at;
    bool ever_planned = false;

    [[nodiscard]] std::uint32_t length() const { return static_cast<std::uint32_t>(tokens.size()); }
    [[nodiscard]] std::uint32_t answer_count() const { return length() - prompt_length; }
    // Positions that could be planned now; the last of them draws.
    [[nodiscard]] std::uint32_t remaining() const { return length() + unread_draws - planned; }
    [[nodiscard]] bool draws_all_planned() const {
        return answer_count() + unread_draws >= answer_max;
    }
    // Tokens whose written pages others may take over. Beams keep theirs: most are of no use to
    // anybody, and pages that a search has left behind must not stand in the way of its next try.
    [[nodiscard]] std::uint32_t publishable() const {
        return std::min(written, group == nullptr ? length() : prompt_length);
    }
    [[nodiscard]] bool decodes() const { return remaining() == 1 && !submit.prefill_only; }
};

}  // namespace troupe::actors
