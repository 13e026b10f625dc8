// Beam search: a group of sequences for one request. Who goes on with which token is decided by
// model/beam_search.hpp; here beams get slots and pages together, fork, die and end.
#include <algorithm>
#include <string>
#include <utility>

#include "actors/beam_group.hpp"
#include "actors/scheduler.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::actors {
namespace {

std::uint32_t width_of(const Request& request) {
    return static_cast<std::uint32_t>(request.submit.params.beam_width);
}

// A greedy draw whose rivals are the candidates; which of them may end is the search's business.
model::DecodingParams row_params(std::uint32_t candidates) {
    model::DecodingParams params;
    params.temperature = 0;
    params.speculation = false;
    params.logprobs = true;
    params.top_logprobs = static_cast<std::int32_t>(candidates);
    return params;
}

}  // namespace

// ---- admission ----------------------------------------------------------------------------------

bool Scheduler::wants_beams(const Submit& submit) {
    return submit.params.beams() && !submit.prefill_only;
}

// Tokens that the request may come to, prompt included.
std::uint32_t Scheduler::tokens_max_of(const Submit& submit) const {
    if (!wants_beams(submit)) return sequence_tokens_max_;
    return std::min(
        sequence_tokens_max_,
        beam_tokens_max(static_cast<std::uint32_t>(submit.params.beam_width),
                        static_cast<std::uint32_t>(submit.prompt.size()), settings_.pages_total));
}

// Why so many beams can never run, or empty.
std::string Scheduler::why_too_wide(const Submit& submit) const {
    if (!wants_beams(submit)) return {};
    const auto width = static_cast<std::uint32_t>(submit.params.beam_width);
    if (width > slot_count_) {
        return "beam_width is " + std::to_string(width) + ", but this server runs at most " +
               std::to_string(slot_count_) + " sequences at once";
    }
    const auto prompt = static_cast<std::uint32_t>(submit.prompt.size());
    if (tokens_max_of(submit) > prompt) return {};
    return "beam_width is " + std::to_string(width) + ", which with this prompt needs at least " +
           std::to_string(beam_pages(width, prompt, prompt + 1)) +
           " pages of memory, but this server has " + std::to_string(settings_.pages_total);
}

// Who needs more slots than are free waits for them, and those behind wait too: otherwise the slots
// of a group would never be free at the same time.
void Scheduler::keep_to_free_slots() {
    std::uint32_t left = unreserved_slots();
    for (std::size_t i = 0; i < admitting_.size(); ++i) {
        const std::uint32_t wanted =
            wants_beams(admitting_[i]->submit) ? width_of(*admitting_[i]) : 1;
        if (wanted > left) {
            admitting_.resize(i);
            return;
        }
        left -= wanted;
    }
}

std::uint32_t Scheduler::unreserved_slots() const {
    auto left = static_cast<std::uint32_t>(free_slots_.size());
    for (const auto& group : groups_)
        left -= group->reserved_slots();
    return left;
}

// Of `tokens` tokens each, beyond what the first beam holds; a preempted group comes back when
// there is room for what it had come to.
std::uint32_t Scheduler::pages_of_further_beams(const Request& request,
                                                std::uint32_t tokens) const {
    if (!wants_beams(request.submit)) return 0;
    const std::uint32_t reached = std::max(tokens, request.beams_reached);
    return static_cast<std::uint32_t>(
        beam_pages(width_of(request), request.prompt_length, reached) - pages_for(tokens));
}

void Scheduler::start_beams(Request& asker, const CacheStepDone::Admitted& admitted) {
    model::BeamSearch search(asker.submit.params, settings_.end_tokens, asker.answer_max);
    model::DecodingParams params = row_params(search.candidates_needed());
    groups_.push_back(std::make_unique<BeamGroup>(
        BeamGroup{.asker = &asker, .search = std::move(search), .row_params = std::move(params)}));
    BeamGroup& group = *groups_.back();
    asker.group = &group;
    group.rows.resize(1);
    Request& first = new_beam(group, 0);
    first.tokens = asker.tokens;
    group.beams.push_back(&first);
    occupy_slot(first, admitted.lease, admitted.cached_tokens);
}

Request& Scheduler::new_beam(BeamGroup& group, std::uint32_t index) {
    const Request& asker = *group.asker;
    Request& beam = new_request();
    beam.submit.reply_to = asker.submit.reply_to;
    beam.submit.request = asker.submit.request;
    beam.submit.params = group.row_params;
    beam.state = State::running;
    beam.group = &group;
    beam.beam = index;
    beam.prompt_length = asker.prompt_length;
    beam.answer_max = asker.answer_max;
    beam.arrival = asker.arrival;
    beam.principal = asker.principal;
    beam.cached_tokens = asker.cached_tokens;
    beam.progress_told_at = now_;
    return beam;
}

// ---- the step -----------------------------------------------------------------------------------

void Scheduler::take_row(Request& beam, std::span<const model::TokenLogprob> best) {
    BeamGroup& group = *beam.group;
    group.rows[beam.beam].assign(best.begin(), best.end());
    if (--group.rows_missing > 0) return;
    if (beam.answer_count() == 0) {
        group.asker->first_token_at = now_;
        tell_progress_now(beam);  // the last that its client hears before the answers
    }
    group.search.advance(group.rows);
    if (group.search.done()) {
        tell_answers(group);
    } else {
        move_beams(group);
    }
}

// A beam's first successor goes on in its place, the others are forks of it; a beam without any
// dies, which makes room for them.
void Scheduler::move_beams(BeamGroup& group) {
    const std::span<const model::BeamSearch::Move> moves = group.search.moves();
    std::vector<Request*> next(moves.size(), nullptr);
    std::vector<bool> goes_on(group.beams.size(), false);
    for (std::uint32_t i = 0; i < moves.size(); ++i) {
        Request& parent = *group.beams[moves[i].parent];
        if (goes_on[moves[i].parent]) {
            group.forks.push_back({i, &parent, moves[i].token});
            continue;
        }
        goes_on[moves[i].parent] = true;
        parent.tokens.push_back(moves[i].token);
        parent.beam = i;
        next[i] = &parent;
    }
    for (std::size_t i = 0; i < goes_on.size(); ++i) {
        if (!goes_on[i]) leave(*group.beams[i]);
    }
    group.beams = std::move(next);
    group.rows.resize(moves.size());
    group.rows_missing = static_cast<std::uint32_t>(moves.size());
}

// Beams come and go: a fork has room for its next token only, and grows like everybody.
void Scheduler::ask_forks() {
    for (const auto& group : groups_) {
        for (const BeamGroup::Fork& fork : group->forks) {
            ask_.fork.push_back({.source = fork.source->lease,
                                 .tokens = fork.source->length() - 1,
                                 .growth_tokens = 1});
            forking_.push_back({group->asker, fork});
        }
        group->forks.clear();
    }
}

// Those that were refused are asked for again in the next step.
void Scheduler::take_forked() {
    std::size_t copy = 0;
    for (std::size_t i = 0; i < forking_.size(); ++i) {
        const LeaseId lease = answer_.forked[i];
        const BeamGroup::Fork& fork = forking_[i].fork;
        BeamGroup* group = forking_[i].asker->group;  // none if it has just been preempted
        if (lease == kNoLease) {
            if (group != nullptr) group->forks.push_back(fork);
            continue;
        }
        const bool copies = ask_.fork[i].tokens % model::kPageTokens > 0;
        if (group == nullptr) {
            unwanted_leases_.push_back(lease);
        } else {
            if (copies) plan_->copies.push_back(answer_.copies[copy]);
            Request& beam = new_beam(*group, fork.beam);
            const auto begin = fork.source->tokens.begin();
            beam.tokens.assign(begin, begin + ask_.fork[i].tokens);
            beam.tokens.push_back(fork.token);
            group->beams[fork.beam] = &beam;
            occupy_slot(beam, lease, ask_.fork[i].tokens);
            beam.unread_end = fork.source->unread_end;  // its lease has the source's pages
        }
        copy += copies ? 1 : 0;
    }
    TROUPE_ASSERT(copy == answer_.copies.size(), "a copy for each fork inside a page");
}

// ---- the end ------------------------------------------------------------------------------------

void Scheduler::tell_answers(BeamGroup& group) {
    Request& asker = *group.asker;
    std::vector<model::BeamSearch::Answer> answers = group.search.answers(asker.submit.answers);
    answers.resize(asker.submit.answers);  // empty ones, where the vocabulary gives no more
    stats_.time_to_first_token.observe(now_ - asker.submitted_at);
    for (std::uint32_t i = 0; i < answers.size(); ++i)
        tell_answer(asker, i, answers[i]);
    retire(asker, FinishReason::stop);
}

// Stop strings cut an answer, they do not steer the search.
void Scheduler::tell_answer(Request& asker, std::uint32_t index,
                            const model::BeamSearch::Answer& answer) {
    FinishReason reason = FinishReason::length;
    StopCause cause;
    asker.generated = 0;
    asker.stop_strings = stop_strings_of(asker.submit.params);
    for (std::size_t i = 0; i < answer.tokens.size() && reason == FinishReason::length; ++i) {
        const std::uint32_t told = asker.generated++;
        if (answer.ended && i + 1 == answer.tokens.size()) {
            reason = FinishReason::stop;
            cause.stop_token = answer.tokens[i];
            break;
        }
        outbox_.add_token(asker.submit.reply_to, asker.submit.request + index, told,
                          {.id = answer.tokens[i], .logprob = answer.logprobs[i]}, {});
        if (const auto stop = stop_string_after(asker, answer.tokens[i])) {
            reason = FinishReason::stop;
            cause = *stop;
        }
    }
    stats_.generation_tokens_total.add(asker.generated);
    tell_finished(asker, index, reason, cause);
}

// The group's requests go as soon as no submitted step names them.
void Scheduler::end_beams(Request& asker) {
    const BeamGroup& group = *asker.group;
    for (Request* beam : group.beams) {
        if (beam == nullptr) continue;
        beam->cancelled_at = std::exchange(asker.cancelled_at, std::nullopt);  // counted once
        leave(*beam);
    }
    asker.group = nullptr;
    std::erase_if(groups_, [&](const auto& g) { return g.get() == &group; });
}

// It waits in front and searches again from the prompt, with the same answers: all that has been
// told until now is progress.
void Scheduler::preempt_beams(Request& asker) {
    for (const Request* beam : asker.group->beams) {
        if (beam != nullptr) asker.beams_reached = std::max(asker.beams_reached, beam->length());
    }
    end_beams(asker);
    asker.state = State::waiting;
    waiting_.enqueue_preempted(asker);
}

std::string Scheduler::check_groups() const {
    std::size_t beams = 0, reserved = 0;
    for (const auto& group : groups_) {
        if (group->asker->group != group.get() || group->asker->state != State::running) {
            return "a group's asker does not run";
        }
        std::size_t missing = group->beams.size();
        for (std::uint32_t i = 0; i < group->beams.size(); ++i) {
            const Request* beam = group->beams[i];
            if (beam == nullptr) continue;
            if (beam->group != group.get() || beam->beam != i || beam->state != State::running) {
                return "a beam is not where its group has it";
            }
            --missing;
            ++beams;
        }
        if (missing != group->forks.size()) return "a beam is neither there nor to come";
        reserved += group->reserved_slots();
    }
    const auto in_groups = std::ranges::count_if(
        running_, [](const Request* request) { return request->group != nullptr; });
    if (static_cast<std::size_t>(in_groups) != beams) return "a beam runs without its group";
    if (reserved > free_slots_.size()) return "a group's slot was given away";
    return {};
}

}  // namespace troupe::actors
