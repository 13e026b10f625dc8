// What runs: decode rows first, then slices of prompts within the step's token budget.
#include <algorithm>

#include "actors/scheduler.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

// A prompt gets at least this much of a step, or a quarter of it, before another gets more: short
// prompts pass a long one, and a step is not cut into crumbs.
constexpr std::uint32_t kPromptShareMin = 32;
constexpr std::uint32_t kPromptShareDivisor = 4;

}  // namespace

// A second step is sent only behind one that is short, that is, carries no prompt: hiding some
// microseconds is not worth making a new request wait for two long ones. Nor is one sent behind
// drafts, whose end decides what comes next, or where drafts wait for the token in flight.
bool Scheduler::may_send() {
    if (in_flight_.size() >= settings_.pipeline_depth) return false;
    const auto is_short = [](const InFlight& s) {
        return s.prompt_tokens == 0 && s.draft_tokens == 0;
    };
    return in_flight_.empty() || (std::ranges::all_of(in_flight_, is_short) && !choose_drafts());
}

void Scheduler::plan_step() {
    decode_rows_ = 0;
    prompt_tokens_ = 0;
    draft_tokens_ = 0;
    model_drafts_ = false;
    if (in_flight_.empty()) (void)choose_drafts();
    plan_decode_rows();
    plan_prompts();
}

void Scheduler::plan_decode_rows() {
    prompts_.clear();
    for (Request* request : running_) {
        if (!wants_row(*request) || request->planned >= request->capacity) continue;
        if (request->decodes()) {
            add_sequence(*request, 1);
            add_draft(*request);
            ++decode_rows_;
        } else {
            prompts_.push_back(request);
        }
    }
}

// The least served principal first, then the oldest request: each takes its share, then what is
// left.
void Scheduler::plan_prompts() {
    if (prompts_.empty()) return;
    std::ranges::sort(prompts_, [this](const Request* a, const Request* b) {
        const double served_a = waiting_.served(*a);
        const double served_b = waiting_.served(*b);
        return served_a != served_b ? served_a < served_b : a->arrival < b->arrival;
    });
    std::uint32_t left = budget_.prefill_tokens(decode_rows_);
    const std::uint32_t share = std::max(kPromptShareMin, left / kPromptShareDivisor);
    shares_.assign(prompts_.size(), 0);
    for (const std::uint32_t at_most : {share, left}) {
        for (std::size_t i = 0; i < prompts_.size() && left > 0; ++i) {
            const Request& prompt = *prompts_[i];
            const std::uint32_t room = prompt.capacity - prompt.planned;
            const std::uint32_t wanted = std::min(prompt.remaining(), room) - shares_[i];
            const std::uint32_t more = std::min({wanted, at_most, left});
            shares_[i] += more;
            left -= more;
        }
    }
    for (std::size_t i = 0; i < prompts_.size(); ++i) {
        if (shares_[i] == 0) continue;
        add_sequence(*prompts_[i], shares_[i]);
        prompt_tokens_ += shares_[i];
        stats_.prompt_tokens_total.add(shares_[i]);
    }
}

void Scheduler::add_sequence(Request& request, std::uint32_t count) {
    const bool to_the_end = count == request.remaining();
    const bool draws = to_the_end && !request.submit.prefill_only;
    plan_->sequences.push_back({.slot = request.slot,
                                .position = request.planned,
                                .token_begin = static_cast<std::uint32_t>(plan_->tokens.size()),
                                .token_count = count,
                                .sample_count = draws ? 1u : 0u});
    if (request.submit.score_prompt) add_targets(request, plan_->sequences.back());
    for (std::uint32_t i = request.planned; i < request.planned + count; ++i) {
        plan_->tokens.push_back(i < request.length() ? request.tokens[i] : model::kDrawnToken);
    }
    request.planned += count;
    request.unread_draws += draws ? 1 : 0;
    ++request.in_flight;
    waiting_.charge(request, count);
    stats_.slots[request.slot].prompt_done.set(std::min(request.planned, request.prompt_length));
    TROUPE_ASSERT(request.planned <= request.capacity, "rows are planned inside the lease");
}

// After each token of a prompt, how likely was its next?
void Scheduler::add_targets(const Request& request, model::SequenceStep& sequence) {
    sequence.target_begin = static_cast<std::uint32_t>(plan_->targets.size());
    const auto begin = request.tokens.begin() + sequence.position + 1;
    const std::uint32_t left = request.length() - sequence.position - 1;
    sequence.target_count = std::min(sequence.token_count, left);
    plan_->targets.insert(plan_->targets.end(), begin, begin + sequence.target_count);
}

void Scheduler::open_slot(Request& request) {
    model::SlotOpen& open = plan_->opens.emplace_back();
    open.slot = request.slot;
    open.params = request.submit.params;
    open.answer_index = request.submit.answer_index;
    open.prompt_length = request.prompt_length;
    open.answer_count = request.answer_count();
    if (open.params.penalised()) open.history = request.tokens;
    grant_pages(request, 0);
    SlotStats& slot = stats_.slots[request.slot];
    slot.request.set(request.submit.request);
    slot.prompt_tokens.set(request.prompt_length);
    slot.prompt_done.set(std::min(request.planned, request.prompt_length));
    slot.generated_tokens.set(request.generated);
}

void Scheduler::grant_pages(const Request& request, std::size_t first) {
    for (const model::PageId page : cache_->pages(request.lease).subspan(first)) {
        plan_->grants.push_back({request.slot, page});
    }
}

std::optional<RunStep> Scheduler::take_plan() {
    if (plan_->sequences.empty()) {
        TROUPE_ASSERT(plan_->opens.empty(), "whoever is admitted runs in that step");
        return std::nullopt;  // closes may stay for the next one
    }
    plan_->step = next_step_++;
    in_flight_.push_back({plan_->step, decode_rows_, prompt_tokens_, draft_tokens_, model_drafts_});
    if (spare_plans_.empty()) spare_plans_.push_back(std::make_unique<model::StepPlan>());
    if (spare_results_.empty()) spare_results_.push_back(std::make_unique<model::StepResult>());
    RunStep run{std::move(plan_), std::move(spare_results_.back())};
    spare_results_.pop_back();
    plan_ = std::move(spare_plans_.back());
    spare_plans_.pop_back();
    plan_->clear();
    run.result->clear();
    return run;
}

}  // namespace troupe::actors
