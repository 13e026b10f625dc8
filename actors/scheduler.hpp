// Scheduler: forms a batch at every model step out of all requests alive at that moment, and
// decides every request's one terminal event. A pure core on the engine thread; owns all requests
// and the prefix cache. Its shell (engine.cpp) feeds it messages and sends what a step gives: at
// most one RunStep to the executor and one Delivery to each hub.
//
// Code by topic: scheduler.cpp the step and its messages, scheduler_admission.cpp who gets pages,
// scheduler_plan.cpp what runs, scheduler_drafts.cpp speculative decoding, scheduler_beams.cpp beam
// search, scheduler_ending.cpp how requests end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/beam_group.hpp"
#include "actors/draft_share.hpp"
#include "actors/engine_stats.hpp"
#include "actors/limits.hpp"
#include "actors/messages.hpp"
#include "actors/outbox.hpp"
#include "actors/prefix_cache.hpp"
#include "actors/request.hpp"
#include "actors/step_budget.hpp"
#include "actors/step_cost.hpp"
#include "actors/waiting_room.hpp"
#include "model/attention_window.hpp"
#include "model/backend.hpp"
#include "model/tokenizer.hpp"

namespace troupe::actors {

// Where drafts may come from. A place found by prompt lookup goes before the draft model.
struct SpeculationSettings {
    bool lookup = true;
    bool model = true;              // where the backend has one
    std::uint32_t tokens_max = 15;  // of one draft
};

struct SchedulerSettings {
    std::uint32_t hub_count = 1;
    std::vector<model::TokenId> end_tokens{};
    const model::Tokenizer* tokenizer = nullptr;  // for stop strings; null where there are none

    // Of the backend.
    std::uint32_t context_length = 0;
    std::uint32_t slots_max = 0;
    std::uint32_t pages_total = 0;
    std::uint32_t tokens_per_step_max = 0;
    bool backend_drafts = false;
    std::uint64_t kv_bytes_per_token = 0;
    model::AttentionWindow window{};

    SpeculationSettings speculation{};
    std::uint32_t waiting_max = limits::kWaitingMax;
    std::uint32_t waiting_per_principal_max = limits::kWaitingPerPrincipalMax;
    std::int64_t step_latency_ms = 40;
    std::int64_t prefill_latency_ms = 200;
    // 2: the next step is sent while the one before it still runs, if that one is short.
    std::uint32_t pipeline_depth = limits::kStepsInFlightMax;

    // Takes over what `info` says about the backend.
    void describe(const model::BackendInfo& info);

    // Pages that one sequence may hold: enough for any, where the window bounds what it needs.
    [[nodiscard]] std::uint32_t pages_per_sequence_max() const;
    // That fit the context and the pool.
    [[nodiscard]] std::uint32_t sequence_tokens_max() const;
};

struct SchedulerOutput {
    std::optional<RunStep> run;
    bool step_again = false;  // live requests, and nothing in flight that would wake the scheduler
    bool stopped = false;     // shut down: nothing lives, nothing is in flight
    std::string failure;      // the executor's, where it has just failed
};

class Scheduler {
 public:
    Scheduler(SchedulerSettings settings, EngineStats& stats);
    ~Scheduler();

    // One step. Consumes the messages; what it has for the hubs is then in outbox().
    void step(runtime::TimePoint now, std::span<SchedulerMessage> messages, SchedulerOutput& out);

    [[nodiscard]] Outbox& outbox() { return outbox_; }
    [[nodiscard]] std::uint32_t live_count() const { return live_count_; }
    [[nodiscard]] const PrefixCache& cache() const { return *cache_; }

    // The first broken rule in words, or empty: pages, slots, lengths. Walks everything.
    [[nodiscard]] std::string check_integrity() const;

 private:
    using State = Request::State;

    // scheduler.cpp
    void receive(SchedulerMessage& message);
    void on(Submit& submit);
    void on(Cancel& cancel);
    void on(StepDone& done);
    void on(ExecutorFailed& failed);
    void on(SchedulerShutdown& shutdown);
    void apply(Request& request, const model::StepPlan& plan, const model::StepResult& results,
               std::size_t index);
    bool tell_scores(Request& request, const model::SequenceStep& step,
                     const model::SequenceResult& result, const model::StepResult& results);
    void append(Request& request, const model::SampledToken& token,
                std::span<const model::TokenLogprob> top);
    [[nodiscard]] std::optional<model::TextStream> stop_strings_of(
        const model::DecodingParams& params) const;
    [[nodiscard]] std::optional<StopCause> stop_string_after(Request& request,
                                                             model::TokenId token);
    void publish_stats();

    // scheduler_admission.cpp
    void ask_cache(bool may_send);
    void ask_releases();
    void ask_trims();
    void ask_growth();
    void ask_admissions();
    void make_room();
    void take_grown();
    void take_admitted();
    void start_running(Request& request, const CacheStepDone::Admitted& admitted);
    void occupy_slot(Request& request, LeaseId lease, std::uint32_t written);
    void see_off_the_departing();
    void preempt_youngest();
    [[nodiscard]] static bool wants_row(const Request& request);

    // scheduler_plan.cpp
    [[nodiscard]] bool may_send();
    void plan_step();
    void plan_decode_rows();
    void plan_prompts();
    void add_sequence(Request& request, std::uint32_t count);
    void add_targets(const Request& request, model::SequenceStep& sequence);
    void open_slot(Request& request);
    void grant_pages(const Request& request, std::size_t first);
    [[nodiscard]] std::optional<RunStep> take_plan();

    // scheduler_drafts.cpp
    [[nodiscard]] bool choose_drafts();
    [[nodiscard]] std::uint32_t draft_tokens_wanted(const Request& request) const;
    [[nodiscard]] static std::optional<DraftKind> draft_kind_of(const Request& request,
                                                                const SchedulerSettings& settings);
    void ask_draft_growth();
    void add_draft(Request& request);
    void settle_draft(Request& request, const model::SequenceStep& step, std::uint32_t rows_held);
    void read_text(Request& request);
    // scheduler_beams.cpp
    [[nodiscard]] static bool wants_beams(const Submit& submit);
    [[nodiscard]] std::uint32_t tokens_max_of(const Submit& submit) const;
    [[nodiscard]] std::string why_too_wide(const Submit& submit) const;
    void keep_to_free_slots();
    [[nodiscard]] std::uint32_t unreserved_slots() const;
    [[nodiscard]] std::uint32_t pages_of_further_beams(const Request& request,
                                                       std::uint32_t tokens) const;
    void start_beams(Request& asker, const CacheStepDone::Admitted& admitted);
    [[nodiscard]] Request& new_beam(BeamGroup& group, std::uint32_t index);
    void take_row(Request& beam, std::span<const model::TokenLogprob> best);
    void move_beams(BeamGroup& group);
    void ask_forks();
    void take_forked();
    void tell_answers(BeamGroup& group);
    void tell_answer(Request& asker, std::uint32_t index, const model::BeamSearch::Answer& answer);
    void end_beams(Request& asker);
    void preempt_beams(Request& asker);
    [[nodiscard]] std::string check_groups() const;

    // scheduler_ending.cpp
    void end_the_stopped();
    void add_admitted_to_scratch();
    [[nodiscard]] std::optional<FinishReason> reason_to_stop(const Request& request) const;
    void fail_everybody(const std::string& message);
    void start_afresh();
    void finish(Request& request, FinishReason reason, StopCause cause = {},
                const std::string& error = {});
    void tell_finished(const Request& request, std::uint32_t answer, FinishReason reason,
                       StopCause cause, const std::string& error = {});
    void retire(Request& request, FinishReason reason);
    void leave(Request& request);
    void reject(const Submit& submit, Rejected::Reason reason, const std::string& message);
    [[nodiscard]] std::int64_t retry_after_ms() const;
    void tell_the_waiting();
    void tell_progress(Request& request);
    void tell_progress_now(Request& request);

    [[nodiscard]] Request& new_request();
    void recycle(Request& request);

    const SchedulerSettings settings_;
    const std::uint32_t sequence_tokens_max_;
    const std::uint32_t slot_count_;
    EngineStats& stats_;
    std::unique_ptr<PrefixCache> cache_;
    PrefixCacheStats cache_counted_;  // of the cache, already in stats_
    WaitingRoom waiting_;
    StepBudget budget_;
    StepCost step_cost_;
    DraftShare draft_share_;
    Outbox outbox_;

    std::vector<std::unique_ptr<Request>> requests_;  // live and spare ones
    std::vector<Request*> spare_requests_;
    std::vector<Request*> running_;    // oldest admission first; of a beam search its beams
    std::vector<Request*> leaving_;    // ended or preempted, named by a submitted step
    std::vector<Request*> departing_;  // in this step: their leases go back
    std::vector<Request*> by_slot_;
    std::vector<model::SlotId> free_slots_;  // those that groups have reserved included
    std::vector<std::unique_ptr<BeamGroup>> groups_;
    std::uint32_t live_count_ = 0;
    std::uint64_t arrivals_ = 0;

    // Of the step being made.
    runtime::TimePoint now_;
    CacheStep ask_;
    CacheStepDone answer_;
    std::vector<Request*> growing_;  // as in ask_.grow: those that must, then for drafts
    std::size_t must_grow_ = 0;
    struct Forking {
        Request* asker;
        BeamGroup::Fork fork;
    };
    std::vector<Forking> forking_;          // as in ask_.fork
    std::vector<Request*> admitting_;       // as in ask_.admit
    std::vector<LeaseId> unwanted_leases_;  // granted to what had to go; returned in the next step
    std::vector<Request*> prompts_;         // running, with more than one position to compute
    std::vector<std::uint32_t> shares_;     // of prompts_, in tokens
    std::vector<Request*> scratch_;
    std::unique_ptr<model::StepPlan> plan_;
    std::uint32_t decode_rows_ = 0;
    std::uint32_t prompt_tokens_ = 0;
    std::uint32_t draft_tokens_ = 0;
    bool model_drafts_ = false;       // some of them the backend's
    std::vector<Request*> drafting_;  // who decodes, as in draft_rows_
    std::vector<DraftShare::Row> draft_rows_;
    bool look_at_waiting_ = false;
    bool admission_blocked_ = false;  // for want of pages, until some are released

    // Of submitted steps.
    struct InFlight {
        std::uint64_t step = 0;
        std::uint32_t decode_rows = 0;
        std::uint32_t prompt_tokens = 0;
        std::uint32_t draft_tokens = 0;
        bool model_drafts = false;
    };
    std::vector<InFlight> in_flight_;  // oldest first
    std::uint64_t next_step_ = 0;
    std::vector<std::unique_ptr<model::StepPlan>> spare_plans_;
    std::vector<std::unique_ptr<model::StepResult>> spare_results_;

    std::optional<runtime::TimePoint> drain_until_;
    runtime::TimePoint news_at_;  // when places were last told
    runtime::TimePoint last_finish_at_;
    double finish_interval_ns_ = 0;  // smoothed
    std::string failure_;
    std::string stop_text_;  // what stop strings are matched on; thrown away
};

}  // namespace troupe::actors
