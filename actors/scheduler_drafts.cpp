// Speculative decoding, exact: a decoding row may carry a draft, tokens that its answer is guessed
// to go on with. The backend draws after each of them as if it were alone; a draft token counts
// while it is what was drawn before it, so the answer is the one without drafts. What was computed
// behind the first wrong one is written over by the next row.
//
// A step that carries prompts has no drafts: it is as full as its latency allows.
#include <algorithm>

#include "actors/scheduler.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

// Pages that stay free, for each who runs, when somebody asks for one only to hold a draft.
constexpr std::uint32_t kPagesLeftEach = 2;

}  // namespace

// Decides who gets how many draft tokens in the step that comes next. While a step is in flight
// this looks ahead, as if its tokens were what their drafts say. False where nobody gets any.
bool Scheduler::choose_drafts() {
    drafting_.clear();
    draft_rows_.clear();
    bool any = false, prompts = false, by_model = false;
    for (Request* request : running_) {
        request->draft_grant = 0;
        if (!wants_row(*request) || request->planned >= request->capacity) continue;
        prompts |= !request->decodes();
        DraftShare::Row row;
        if (const auto kind = draft_kind_of(*request, settings_)) {
            row = {request->draft_odds.of(*kind), draft_tokens_wanted(*request)};
            request->draft_kind = *kind;
            any |= row.most > 0;
            by_model |= row.most > 0 && *kind == DraftKind::model;
        }
        drafting_.push_back(request);
        draft_rows_.push_back(row);
    }
    if (!any || prompts || drafting_.size() >= settings_.tokens_per_step_max) return false;
    const auto room = settings_.tokens_per_step_max - static_cast<std::uint32_t>(drafting_.size());
    const bool granted = draft_share_.decide(draft_rows_, step_cost_, by_model, room);
    for (std::size_t i = 0; i < drafting_.size(); ++i)
        drafting_[i]->draft_grant = draft_rows_[i].granted;
    return granted;
}

// Where the request's next draft would come from.
std::optional<DraftKind> Scheduler::draft_kind_of(const Request& request,
                                                  const SchedulerSettings& settings) {
    if (!request.decodes() || !request.submit.params.speculation) return std::nullopt;
    const std::uint32_t match = request.lookup.match_length();
    if (settings.speculation.lookup && match > 0) return kind_of_match(match);
    if (settings.speculation.model && settings.backend_drafts) return DraftKind::model;
    return std::nullopt;
}

// As many as fit the lease and the answer, whose last token is never a draft's: it is drawn behind.
std::uint32_t Scheduler::draft_tokens_wanted(const Request& request) const {
    const std::uint32_t drawn = request.answer_count() + request.unread_draws + 1;
    return std::min({settings_.speculation.tokens_max, request.capacity - request.planned - 1,
                     request.answer_max - std::min(request.answer_max, drawn)});
}

// A draft at the end of a lease wants the next page a little early. It is no reason to send anybody
// away: only where pages are plenty, and refusing it has no consequence.
void Scheduler::ask_draft_growth() {
    if (answer_.pages_free < kPagesLeftEach * running_.size()) return;
    for (Request* request : running_) {
        if (!wants_row(*request) || request->planned >= request->capacity) continue;
        if (!draft_kind_of(*request, settings_)) continue;
        const std::uint32_t last = request->prompt_length + request->answer_max - 1;
        const std::uint32_t wanted =
            std::min(request->planned + 1 + settings_.speculation.tokens_max, last);
        if (wanted <= request->capacity) continue;
        ask_.grow.push_back({request->lease, 1});
        growing_.push_back(request);
    }
}

// Behind the request's row, which is the plan's last.
void Scheduler::add_draft(Request& request) {
    const std::uint32_t count = request.draft_grant;
    if (count == 0) {
        request.draft_odds.fade();
        return;
    }
    TROUPE_ASSERT(request.unread_draws == 1, "a draft follows a token that is known");
    model::SequenceStep& row = plan_->sequences.back();
    if (request.draft_kind == DraftKind::model) {
        plan_->tokens.insert(plan_->tokens.end(), count, model::kDraftToken);
        model_drafts_ = true;
    } else {
        request.lookup.propose(request.tokens, count, plan_->tokens);
    }
    row.token_count += count;
    row.sample_count += count;
    request.planned += count;
    request.unread_draws += count;
    draft_tokens_ += count;
    TROUPE_ASSERT(request.planned <= request.capacity, "drafts are planned inside the lease");
}

// The first `rows_held` of the row's tokens are the answer's: the rest was never written.
void Scheduler::settle_draft(Request& request, const model::SequenceStep& step,
                             std::uint32_t rows_held) {
    const std::uint32_t proposed = step.sample_count - 1;
    const std::uint32_t accepted = rows_held - 1;
    request.written -= proposed - accepted;
    request.planned = request.written;
    request.draft_odds.learn(request.draft_kind, proposed, accepted);
    request.draft_tokens += proposed;
    request.accepted_tokens += accepted;
    waiting_.charge(request, accepted);
    stats_.drafts_total.add(1);
    stats_.draft_tokens_total.add(proposed);
    stats_.accepted_tokens_total.add(accepted);
}

// The index behind prompt lookup follows what is computed, so that a long prompt costs each step a
// little instead of one step much.
void Scheduler::read_text(Request& request) {
    if (!settings_.speculation.lookup || !request.submit.params.speculation) return;
    const bool all = request.written + 1 >= request.length();
    request.lookup.extend(
        std::span(std::as_const(request.tokens)).first(all ? request.length() : request.written));
}

}  // namespace troupe::actors
