// POST /v1/chat/completions and /v1/completions: n answers to each prompt, all at work at once,
// told as one JSON object or as server-sent events. Chunks are made when they are asked for. With
// best_of there are more at work than are told; beams are one request with n answers. A prompt
// whose own tokens are to be scored is a further request, which draws nothing; its answers share
// its pages.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "actors/generation.hpp"
#include "gateway/client_stream_shell.hpp"
#include "gateway/http_exchange_call.hpp"
#include "gateway/wire_completion.hpp"
#include "gateway/wire_errors.hpp"
#include "gateway/wire_prompt.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::gateway {
namespace {

using Started = HttpExchange::Started;

// One choice: its place in the answer, and how much of it has been told.
struct Choice {
    actors::RequestId request = 0;
    runtime::SharedStopFlag stop;
    actors::Generation generation;
    std::size_t prompt = 0;  // which of the call's
    std::uint32_t prompt_tokens = 0;
    std::string prefix;  // the prompt, echoed
    std::size_t text_told = 0;
    std::size_t scores_told = 0;
    std::size_t characters_told = 0;
    bool begun = false;  // role or prefix told
    bool ended = false;  // finish_reason told
};

// The request that says how likely a prompt's own tokens were.
struct PromptScoring {
    actors::RequestId request = 0;
    runtime::SharedStopFlag stop;
    std::size_t tokens = 0;
    std::vector<actors::TokenScore> scores;  // the first token's is NaN: nothing stands before it
    bool ended = false;

    [[nodiscard]] bool done() const { return scores.size() == tokens; }
    // `run` belongs to `delivery`.
    void on(const actors::PromptScores& run, const actors::Delivery& delivery);
};

void PromptScoring::on(const actors::PromptScores& run, const actors::Delivery& delivery) {
    TROUPE_ASSERT(run.first_index == scores.size(), "scores arrive in order");
    for (std::uint32_t i = run.begin; i < run.begin + run.count; ++i) {
        const model::SampledToken& token = delivery.tokens[i];
        const auto top = std::span(delivery.top).subspan(token.top_begin, token.top_count);
        scores.push_back({token.id, token.logprob, {top.begin(), top.end()}});
    }
}

actors::RequestError unscored_error(const actors::Finished& finished) {
    if (finished.reason != actors::FinishReason::deadline)
        return actors::to_request_error(finished);
    return {.status = 408,
            .code = "deadline_exceeded",
            .message = "deadline_ms had passed before the prompt's log-probabilities were known.",
            .param = "deadline_ms"};
}

class CompletionCall final : public HttpCall, private actors::SessionHandler {
 public:
    CompletionCall(const HttpCallContext& context, CompletionRequest request)
        : hub_(context.hub),
          served_(context.served),
          principal_(context.client.principal),
          output_ready_(context.output_ready),
          request_(std::move(request)),
          head_{.chat = request_.chat,
                .include_usage = request_.stream && request_.include_usage,
                .id = fmt::format("{}-{}", request_.chat ? "chatcmpl" : "cmpl", hub_.random_hex()),
                .created = hub_.unix_seconds(),
                .served = served_,
                .params = request_.params},
          session_(hub_.join(*this)) {
        if (request_.deadline) deadline_ = hub_.now() + *request_.deadline;
        if (!request_.seed_given) request_.params.seed = draw_seed(hub_);
        if (hub_.draining()) {
            fail(actors::shutting_down_error());
        } else {
            prepare();
        }
    }
    ~CompletionCall() override { disconnect(); }

    [[nodiscard]] Started state() const override { return state_; }
    [[nodiscard]] HttpReply take_reply() override { return std::move(reply_); }
    [[nodiscard]] bool finished() const override { return finished_; }
    [[nodiscard]] std::size_t pending_bytes() const override {
        std::size_t bytes = 0;
        for (const Choice& choice : choices_)
            bytes += choice.generation.text().size() - choice.text_told;
        return bytes;
    }
    void disconnect() override {
        if (!std::exchange(joined_, false)) return;
        stop_all(runtime::StopReason::disconnected);
        hub_.leave(session_);
    }
    [[nodiscard]] bool next_chunk(std::string& out) override;

 private:
    void on_event(const actors::SessionEvent& event, const actors::Delivery& delivery) override;
    void on_delivered() override { output_ready_(); }
    void on_shutdown() override {}

    void prepare();
    void submit_all(std::vector<FittedPrompt> prompts);
    void submit_scoring(const std::vector<model::TokenId>& prompt);
    void submit(const Choice& choice, const std::vector<model::TokenId>& prompt,
                std::uint32_t answer);
    [[nodiscard]] actors::Submit submission(actors::RequestId request,
                                            const std::vector<model::TokenId>& prompt) const;
    [[nodiscard]] bool take_scoring(const actors::SessionEvent& event,
                                    const actors::Delivery& delivery);
    void fail(actors::RequestError error);
    void stop_all(runtime::StopReason reason);
    [[nodiscard]] bool all_ended() const;
    void reply_with_all();
    [[nodiscard]] CompletionText echo_of(const Choice& choice, std::uint32_t index) const;
    [[nodiscard]] std::vector<const Choice*> best_choices() const;
    [[nodiscard]] AnswerFacts facts_of(const Choice& choice) const;
    [[nodiscard]] actors::Usage total_usage() const;
    [[nodiscard]] MaybeUsage usage_so_far(const Choice& choice) const;
    [[nodiscard]] std::string echoed(const CompletionPrompt& prompt) const;
    [[nodiscard]] bool append_next(std::string& out, std::uint32_t index);
    [[nodiscard]] bool append_news(std::string& out, std::uint32_t index);
    void append_end(std::string& out);

    actors::SessionHub& hub_;
    const ServedModel& served_;
    const actors::Principal principal_;
    const std::function<void()>& output_ready_;
    CompletionRequest request_;
    const CompletionHead head_;
    const actors::SessionId session_;
    bool joined_ = true;
    std::optional<runtime::TimePoint> deadline_;
    std::uint32_t dropped_messages_ = 0;
    bool system_in_user_ = false;

    std::vector<Choice> choices_;
    std::vector<PromptScoring> scorings_;  // one a prompt, or none
    std::optional<actors::RequestError> error_;
    Started state_ = Started::undecided;
    HttpReply reply_;
    bool finished_ = false;
};

// All prompts of a call, or the first error among them.
WireResult<std::vector<FittedPrompt>> make_prompts(const CompletionRequest& request,
                                                   const ServedModel& served) {
    std::vector<FittedPrompt> prompts;
    if (request.chat) {
        const actors::PromptFit fit{.drop_old_turns = request.drop_old_turns,
                                    .answer_tokens = request.params.max_tokens};
        auto fitted = make_prompt(request.messages, fit, served, request.tools_json);
        if (!fitted) return fitted.error();
        prompts.push_back(std::move(*fitted));
    }
    for (const CompletionPrompt& prompt : request.prompts) {
        auto fitted = make_prompt(prompt, served);
        if (!fitted) return fitted.error();
        prompts.push_back(std::move(*fitted));
    }
    return prompts;
}

void CompletionCall::prepare() {
    std::size_t bytes = prompt_bytes(request_.messages) + request_.tools_json.size();
    for (const CompletionPrompt& prompt : request_.prompts)
        bytes += prompt_bytes(prompt);
    using Made = WireResult<std::vector<FittedPrompt>>;
    const auto take = [this](Made made) {
        if (!made) return fail(made.error());
        submit_all(std::move(*made));
    };
    if (bytes <= served_.limits.offload_bytes) return take(make_prompts(request_, served_));
    // The helper works on a copy: this call may be gone before it is done.
    auto request = std::make_shared<const CompletionRequest>(request_);
    auto made = std::make_shared<std::optional<Made>>();
    hub_.offload(
        session_, [request, made, &served = served_] { *made = make_prompts(*request, served); },
        [this, take, made] {
            take(std::move(**made));
            output_ready_();
        });
}

void CompletionCall::submit_all(std::vector<FittedPrompt> prompts) {
    const bool scores = request_.scores_prompts();
    const auto count =
        static_cast<std::uint32_t>(prompts.size() * (request_.candidates + (scores ? 1 : 0)));
    if (auto refused = hub_.refuse(principal_, count)) return fail(std::move(*refused));
    dropped_messages_ = prompts.front().dropped_messages;  // a chat has one prompt
    system_in_user_ = prompts.front().system_in_user;
    choices_.reserve(count);
    for (std::size_t p = 0; p < prompts.size(); ++p) {
        if (scores) submit_scoring(prompts[p].tokens);
        for (std::uint32_t answer = 0; answer < request_.candidates; ++answer) {
            const bool of_beams = request_.params.beams() && answer > 0;
            choices_.push_back(
                {.request = hub_.next_request(),
                 .stop = of_beams ? choices_.back().stop : runtime::StopFlag::make(),
                 .generation = actors::Generation(served_.tokenizer, request_.params),
                 .prompt = p,
                 .prompt_tokens = static_cast<std::uint32_t>(prompts[p].tokens.size()),
                 .prefix = request_.echo ? echoed(request_.prompts[p]) : std::string()});
            if (!of_beams) submit(choices_.back(), prompts[p].tokens, answer);
        }
    }
}

actors::Submit CompletionCall::submission(actors::RequestId request,
                                          const std::vector<model::TokenId>& prompt) const {
    actors::Submit submit;
    submit.reply_to = hub_.address_of(session_);
    submit.request = request;
    submit.prompt = prompt;
    submit.params = request_.params;
    submit.principal = principal_;
    submit.cache_salt = principal_.id;
    submit.deadline = deadline_;
    return submit;
}

void CompletionCall::submit(const Choice& choice, const std::vector<model::TokenId>& prompt,
                            std::uint32_t answer) {
    actors::Submit submit = submission(choice.request, prompt);
    if (request_.ranks()) submit.params.logprobs = true;
    submit.answer_index = answer;
    if (request_.params.beams()) submit.answers = request_.answers;
    submit.stop = choice.stop;
    hub_.submit(std::move(submit));
}

void CompletionCall::submit_scoring(const std::vector<model::TokenId>& prompt) {
    PromptScoring& scoring = scorings_.emplace_back();
    scoring.request = hub_.next_request();
    scoring.stop = runtime::StopFlag::make();
    scoring.tokens = prompt.size();
    scoring.scores.push_back({prompt.front(), std::numeric_limits<float>::quiet_NaN(), {}});
    actors::Submit submit = submission(scoring.request, prompt);
    submit.prefill_only = true;
    submit.score_prompt = true;
    submit.stop = scoring.stop;
    hub_.submit(std::move(submit));
}

std::string CompletionCall::echoed(const CompletionPrompt& prompt) const {
    if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
    auto stream = model::TextStream::make(served_.tokenizer, {});
    TROUPE_ASSERT(stream.has_value(), "there are no stop strings");
    std::string text;
    stream->feed(std::get<std::vector<model::TokenId>>(prompt), text);
    stream->finish(text);
    return text;
}

void CompletionCall::on_event(const actors::SessionEvent& event, const actors::Delivery& delivery) {
    const auto request = std::visit([](const auto& e) { return e.request; }, event);
    if (error_) return;
    if (!take_scoring(event, delivery)) {
        const auto choice = std::ranges::find(choices_, request, &Choice::request);
        if (choice == choices_.end()) return;
        actors::Generation& generation = choice->generation;
        if (const auto* run = std::get_if<actors::TokenRun>(&event)) {
            generation.on(*run, delivery);
        } else if (const auto* finished = std::get_if<actors::Finished>(&event)) {
            generation.on(*finished);
        } else if (const auto* rejected = std::get_if<actors::Rejected>(&event)) {
            generation.on(*rejected);
        }
        if (generation.ended() && generation.error()) return fail(*generation.error());
    }
    if (error_ || state_ != Started::undecided) return;
    if (request_.stream) {
        state_ = Started::stream;
    } else if (all_ended()) {
        reply_with_all();
    }
}

// Whether the event is about the scoring of a prompt. One that ends before it is done has no score
// to tell, and neither has the call.
bool CompletionCall::take_scoring(const actors::SessionEvent& event,
                                  const actors::Delivery& delivery) {
    const auto request = std::visit([](const auto& e) { return e.request; }, event);
    const auto scoring = std::ranges::find(scorings_, request, &PromptScoring::request);
    if (scoring == scorings_.end()) return false;
    if (const auto* run = std::get_if<actors::PromptScores>(&event)) {
        scoring->on(*run, delivery);
    } else if (const auto* finished = std::get_if<actors::Finished>(&event)) {
        scoring->ended = true;
        if (!scoring->done()) fail(unscored_error(*finished));
    } else if (const auto* rejected = std::get_if<actors::Rejected>(&event)) {
        scoring->ended = true;
        fail(actors::to_request_error(*rejected));
    }
    return true;
}

bool CompletionCall::all_ended() const {
    return std::ranges::all_of(scorings_, &PromptScoring::done) &&
           std::ranges::all_of(choices_, [](const Choice& c) { return c.generation.ended(); });
}

// One answer's failure is the call's: the others are of no use to its client.
void CompletionCall::fail(actors::RequestError error) {
    stop_all(runtime::StopReason::cancelled);
    error_ = std::move(error);
    if (state_ != Started::undecided) return;
    reply_ = error_reply(*error_);
    state_ = Started::reply;
}

void CompletionCall::stop_all(runtime::StopReason reason) {
    for (Choice& choice : choices_) {
        if (!choice.generation.ended() && choice.stop->request(reason)) hub_.cancel(choice.request);
    }
    for (PromptScoring& scoring : scorings_) {
        if (!scoring.ended && scoring.stop->request(reason)) hub_.cancel(scoring.request);
    }
}

actors::Usage CompletionCall::total_usage() const {
    actors::Usage total;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
        const actors::Usage& usage = choices_[i].generation.usage();
        total.generated_tokens += usage.generated_tokens;
        total.draft_tokens += usage.draft_tokens;
        total.accepted_tokens += usage.accepted_tokens;
        if (i % request_.candidates != 0) continue;  // a prompt counts once, whatever n
        total.prompt_tokens += usage.prompt_tokens;
        // A prompt that is scored is computed, whatever its answers then find in the cache.
        if (scorings_.empty()) total.cached_tokens += usage.cached_tokens;
    }
    return total;
}

MaybeUsage CompletionCall::usage_so_far(const Choice& choice) const {
    if (!request_.continuous_usage) return std::nullopt;
    return UsageSoFar{choice.prompt_tokens, choice.generation.tokens()};
}

AnswerFacts CompletionCall::facts_of(const Choice& choice) const {
    const actors::Generation& answer = choice.generation;
    AnswerFacts facts{.reason = answer.reason(),
                      .cause = answer.cause(),
                      .usage = answer.usage(),
                      .timings = answer.timings()};
    if (request_.ranks()) {
        facts.best_of = request_.candidates;
        facts.mean_logprob = answer.mean_logprob();
    }
    if (request_.drop_old_turns) facts.dropped_messages = dropped_messages_;
    facts.system_in_user = system_in_user_;
    return facts;
}

// Of each prompt the n that are told: all in their order, or the best of best_of.
std::vector<const Choice*> CompletionCall::best_choices() const {
    std::vector<const Choice*> best;
    for (std::size_t begin = 0; begin < choices_.size(); begin += request_.candidates) {
        std::vector<const Choice*> candidates;
        for (std::size_t i = begin; i < begin + request_.candidates; ++i)
            candidates.push_back(&choices_[i]);
        if (request_.ranks()) {
            std::ranges::stable_sort(candidates, std::ranges::greater{}, [](const Choice* choice) {
                return choice->generation.mean_logprob();
            });
        }
        best.insert(best.end(), candidates.begin(), candidates.begin() + request_.answers);
    }
    return best;
}

// The prompt before a choice's answer, with the scores of its tokens where they are known.
CompletionText CompletionCall::echo_of(const Choice& choice, std::uint32_t index) const {
    CompletionText text{.index = index, .text = choice.prefix, .scores = {}};
    if (scorings_.empty()) return text;
    text.scores = scorings_[choice.prompt].scores;
    // The last token ends where the text does; a tokenizer may have put a space before the first.
    text.text_offset = static_cast<std::int64_t>(count_characters(choice.prefix));
    for (const actors::TokenScore& score : text.scores) {
        text.text_offset -=
            static_cast<std::int64_t>(count_characters(served_.tokenizer.bytes_of(score.id)));
    }
    return text;
}

void CompletionCall::reply_with_all() {
    const std::vector<const Choice*> best = best_choices();
    std::vector<std::string> whole(best.size());
    std::vector<std::vector<actors::TokenScore>> scores(best.size());
    std::vector<CompletionText> texts;
    std::vector<AnswerFacts> facts;
    for (std::size_t i = 0; i < best.size(); ++i) {
        const actors::Generation& answer = best[i]->generation;
        CompletionText text = echo_of(*best[i], static_cast<std::uint32_t>(i));
        if (text.scores.empty())
            text.text_offset = static_cast<std::int64_t>(count_characters(text.text));
        whole[i] = best[i]->prefix + answer.text();
        scores[i].assign(text.scores.begin(), text.scores.end());
        scores[i].insert(scores[i].end(), answer.scores().begin(), answer.scores().end());
        text.text = whole[i];
        text.scores = scores[i];
        texts.push_back(text);
        facts.push_back(facts_of(*best[i]));
    }
    append_completion(reply_.body, head_, texts, facts, total_usage());
    state_ = Started::reply;
}

// ---- server-sent events -------------------------------------------------------------------------

bool CompletionCall::next_chunk(std::string& out) {
    if (state_ != Started::stream || finished_) return false;
    if (error_) {
        out += "data: ";
        out += error_body(*error_);
        out += "\n\ndata: [DONE]\n\n";
        finished_ = true;
        return true;
    }
    bool appended = false;
    for (std::uint32_t index = 0; index < choices_.size(); ++index)
        appended = append_next(out, index) || appended;
    if (!appended && std::all_of(choices_.begin(), choices_.end(),
                                 [](const Choice& choice) { return choice.ended; })) {
        append_end(out);
        return true;
    }
    return appended;
}

bool CompletionCall::append_next(std::string& out, std::uint32_t index) {
    Choice& choice = choices_[index];
    if (choice.ended) return false;
    if (!scorings_.empty() && !scorings_[choice.prompt].done()) return false;
    const std::size_t before = out.size();
    out += "data: ";
    bool appended = true;
    if (!choice.begun && head_.chat) {
        append_role_chunk(out, head_, index, usage_so_far(choice));
    } else if (!choice.begun && request_.echo) {
        append_text_chunk(out, head_, echo_of(choice, index), usage_so_far(choice));
        choice.characters_told = count_characters(choice.prefix);
    } else {
        appended = append_news(out, index);
    }
    choice.begun = true;
    if (appended) {
        out += "\n\n";
    } else {
        out.resize(before);
    }
    return appended;
}

// What is new in a choice, or its end.
bool CompletionCall::append_news(std::string& out, std::uint32_t index) {
    Choice& choice = choices_[index];
    const std::string& text = choice.generation.text();
    const auto& scores = choice.generation.scores();
    if (choice.text_told < text.size() || choice.scores_told < scores.size()) {
        const CompletionText news{.index = index,
                                  .text = std::string_view(text).substr(choice.text_told),
                                  .scores = std::span(scores).subspan(choice.scores_told),
                                  .text_offset = static_cast<std::int64_t>(choice.characters_told)};
        append_text_chunk(out, head_, news, usage_so_far(choice));
        choice.characters_told += count_characters(news.text);
        choice.text_told = text.size();
        choice.scores_told = scores.size();
        return true;
    }
    if (!choice.generation.ended()) return false;
    append_finish_chunk(out, head_, index, facts_of(choice), usage_so_far(choice));
    choice.ended = true;
    return true;
}

void CompletionCall::append_end(std::string& out) {
    if (head_.include_usage) {
        out += "data: ";
        append_usage_chunk(out, head_, total_usage());
        out += "\n\n";
    }
    out += "data: [DONE]\n\n";
    finished_ = true;
}

}  // namespace

std::unique_ptr<HttpCall> make_completion_call(const HttpCallContext& context, HttpRoute route,
                                               std::string_view body) {
    auto request = route == HttpRoute::chat_completions
                       ? read_chat_body(body, context.served)
                       : read_completion_body(body, context.served);
    if (!request) return make_reply_call(error_reply(request.error()));
    return std::make_unique<CompletionCall>(context, std::move(*request));
}

}  // namespace troupe::gateway
