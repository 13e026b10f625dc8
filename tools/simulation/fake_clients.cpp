#include "tools/simulation/fake_clients.hpp"

#include <algorithm>
#include <chrono>
#include <span>
#include <utility>
#include <variant>

#include "actors/beam_group.hpp"
#include "actors/limits.hpp"
#include "runtime/timer.hpp"
#include "tools/simulation/expected_answer.hpp"

namespace troupe::simulation {
namespace {

using namespace std::chrono_literals;
using actors::FinishReason;
using model::TokenId;

constexpr std::uint64_t kStories = 4;  // prompts begin like one of so many others
constexpr std::uint64_t kPrincipals = 3;
constexpr std::uint32_t kSharedTokens = 24;  // the server's own words, in front of every story

runtime::Duration up_to(Random& random, runtime::Duration most) {
    return runtime::Duration(random.between(0, most.count()));
}

}  // namespace

FakeClients::FakeClients(runtime::Simulation& simulation, runtime::SimLane& lane, std::uint32_t hub,
                         const ServerFacts& server, std::vector<std::string>& failures)
    : simulation_(simulation),
      lane_(lane),
      hub_(hub),
      server_(server),
      failures_(failures),
      inbox_(actors::limits::hub_mailbox(server.room.sequence_tokens_max)) {}

void FakeClients::start(runtime::Address<actors::SchedulerMessage> scheduler,
                        std::uint32_t requests) {
    scheduler_ = scheduler;
    lane_.spawn("listen", listen());
    lane_.spawn("submit_all", submit_all(requests));
}

boost::asio::awaitable<void> FakeClients::submit_all(std::uint32_t requests) {
    Random& random = simulation_.random();
    const runtime::Duration pause = random.chance(0.5) ? 3ms : 60ms;
    while (submitted() < requests) {
        const bool burst = simulation_.chance("overload", 0.2);
        for (std::uint64_t i = burst ? 12 : 1; i > 0; --i)
            send(make_request());
        co_await runtime::sleep_for(lane_, up_to(random, pause));
    }
    all_submitted_ = true;
}

boost::asio::awaitable<void> FakeClients::cancel_later(actors::RequestId id) {
    Random& random = simulation_.random();
    co_await runtime::sleep_for(lane_, up_to(random, 100ms));
    const bool gone = simulation_.chance("dead_client", 0.5);
    cancel(id, gone ? runtime::StopReason::disconnected : runtime::StopReason::cancelled);
    if (!simulation_.chance("duplicate_cancel", 0.5)) co_return;
    co_await runtime::sleep_for(lane_, up_to(random, 20ms));
    cancel(id, runtime::StopReason::cancelled);
}

boost::asio::awaitable<void> FakeClients::listen() {
    std::vector<actors::HubMessage> batch;
    while (co_await inbox_.receive_all(batch)) {
        for (const actors::HubMessage& message : batch) {
            const auto* delivery = std::get_if<actors::Delivery>(&message);
            if (delivery == nullptr) continue;
            for (const actors::SessionEvent& event : delivery->events) {
                std::visit([&](const auto& e) { hear(*delivery, e); }, event);
            }
        }
        if (simulation_.chance("slow_client", 0.05)) {
            co_await runtime::sleep_for(lane_, up_to(simulation_.random(), 300ms));
        }
    }
}

actors::Submit FakeClients::make_request() {
    Random& random = simulation_.random();
    actors::Submit submit;
    submit.request = (actors::RequestId{hub_} << 32) | (requests_.size() + 1);
    submit.reply_to = {hub_, submit.request * 3};
    submit.prompt = make_prompt();
    submit.params = make_params();
    submit.answer_index = static_cast<std::uint32_t>(random.below(3));
    submit.principal = {random.below(kPrincipals), 1.0 + static_cast<double>(random.below(2))};
    submit.cache_salt = random.chance(0.5) ? 0 : submit.principal.id + 1;
    submit.shared_tokens = random.chance(0.5) ? kSharedTokens : 0;
    submit.prefill_only = random.chance(0.1);
    submit.score_prompt = submit.prefill_only && random.chance(0.5);
    if (random.chance(0.05)) submit.deadline = lane_.now() + up_to(random, 300ms);
    submit.stop = runtime::StopFlag::make();
    if (random.chance(0.15)) ask_for_beams(submit);
    return submit;
}

void FakeClients::ask_for_beams(actors::Submit& submit) {
    Random& random = simulation_.random();
    submit.params.presence_penalty = 0;
    submit.params.beam_width = static_cast<std::int32_t>(random.between(2, 6));
    submit.params.length_penalty = static_cast<double>(random.between(-1, 2));
    if (submit.prefill_only) return;
    submit.answers = static_cast<std::uint32_t>(random.between(1, submit.params.beam_width));
}

std::vector<TokenId> FakeClients::make_prompt() {
    Random& random = simulation_.random();
    std::vector<TokenId> prompt;
    if (!last_conversation_.empty() && random.chance(0.3)) {
        prompt = last_conversation_;
    } else {
        const auto story = static_cast<std::uint32_t>(random.below(kStories));
        for (std::uint32_t i = 0,
                           length = kSharedTokens + static_cast<std::uint32_t>(random.below(60));
             i < length; ++i) {
            const std::uint32_t word = i < kSharedTokens ? i : i * (story + 2);
            prompt.push_back(static_cast<TokenId>(1 + word % 26));
        }
    }
    std::uint64_t more = 1 + random.below(12);
    if (simulation_.chance("huge_prompt", 0.05)) more += random.below(600);
    for (; more > 0; --more)
        prompt.push_back(static_cast<TokenId>(1 + random.below(26)));
    return prompt;
}

model::DecodingParams FakeClients::make_params() {
    Random& random = simulation_.random();
    model::DecodingParams params;
    params.seed = random.below(4);
    params.max_tokens = random.chance(0.1) ? -1 : static_cast<std::int32_t>(random.below(100));
    params.ignore_eos = random.chance(0.5);
    if (random.chance(0.5)) params.top_k = static_cast<std::int32_t>(random.between(1, 9));
    if (random.chance(0.2)) params.temperature = 0;
    params.speculation = random.chance(0.8);
    if (random.chance(0.2)) params.min_tokens = static_cast<std::int32_t>(random.below(20));
    if (random.chance(0.3)) params.presence_penalty = 0.5;
    if (random.chance(0.1)) {
        params.stop_token_ids.push_back(static_cast<TokenId>(1 + random.below(26)));
    }
    while (random.chance(0.2) && params.stop.size() < 4) {
        std::string& stop = params.stop.emplace_back();
        for (std::uint64_t i = 1 + random.below(4); i > 0; --i) {
            stop += static_cast<char>('a' + random.below(26));
        }
    }
    return params;
}

void FakeClients::send(actors::Submit submit) {
    const actors::RequestId id = submit.request;
    const std::uint32_t answers = submit.answers;
    for (std::uint32_t answer = 0; answer < answers; ++answer) {
        requests_[id + answer] = {
            .submit = submit, .heard = {}, .prompt_scores = {}, .answer = answer};
        ++unended_;
    }
    if (!scheduler_->send(std::move(submit))) {
        if (!server_.closing) fail(id, "the engine has ended and nobody had asked it to");
        for (std::uint32_t answer = 0; answer < answers; ++answer)
            end(requests_[id + answer]);
        return;
    }
    if (simulation_.chance("cancel", 0.3)) lane_.spawn("cancel_later", cancel_later(id));
}

void FakeClients::cancel(actors::RequestId id, runtime::StopReason reason) {
    Sent& sent = requests_[id];
    for (std::uint32_t answer = 0; answer < sent.submit.answers; ++answer)
        requests_[id + answer].asked_to_stop = true;
    if (sent.submit.stop->request(reason)) scheduler_->send_control(actors::Cancel{id});
}

void FakeClients::hear(const actors::Delivery&, const actors::Queued& event) {
    (void)find(event.session, event.request);
}

void FakeClients::hear(const actors::Delivery&, const actors::PromptProgress& event) {
    const Sent* sent = find(event.session, event.request);
    if (sent != nullptr && event.prompt_done > sent->submit.prompt.size()) {
        fail(event.request, "more of the prompt was computed than there is");
    }
}

void FakeClients::hear(const actors::Delivery& delivery, const actors::TokenRun& event) {
    Sent* sent = find(event.session, event.request);
    if (sent == nullptr) return;
    if (event.first_index != sent->heard.size() || event.count == 0) {
        fail(event.request, "its tokens are not contiguous");
    }
    tokens_heard_ += event.count;
    for (std::uint32_t i = 0; i < event.count; ++i) {
        sent->heard.push_back(delivery.tokens.at(event.begin + i).id);
    }
}

void FakeClients::hear(const actors::Delivery& delivery, const actors::PromptScores& event) {
    Sent* sent = find(event.session, event.request);
    if (sent == nullptr) return;
    if (event.first_index != sent->prompt_scores.size() + 1 || event.count == 0) {
        fail(event.request, "its prompt's scores are not contiguous");
    }
    for (std::uint32_t i = 0; i < event.count; ++i) {
        const model::SampledToken& scored = delivery.tokens.at(event.begin + i);
        if (event.first_index + i >= sent->submit.prompt.size() ||
            scored.id != sent->submit.prompt[event.first_index + i]) {
            fail(event.request, "a score belongs to no token of its prompt");
        }
        sent->prompt_scores.push_back(scored.logprob);
    }
}

void FakeClients::hear(const actors::Delivery&, const actors::Finished& event) {
    Sent* sent = find(event.session, event.request);
    if (sent == nullptr) return;
    lane_.note("finished", static_cast<std::int64_t>(event.request),
               static_cast<std::int64_t>(event.reason));
    judge(*sent, event);
    if (event.reason == FinishReason::stop || event.reason == FinishReason::length) {
        last_conversation_ = sent->submit.prompt;
        last_conversation_.insert(last_conversation_.end(), sent->heard.begin(), sent->heard.end());
        if (last_conversation_.size() > 200) last_conversation_.clear();
    }
    end(*sent);
}

void FakeClients::hear(const actors::Delivery&, const actors::Rejected& event) {
    Sent* sent = find(event.session, event.request);
    if (sent == nullptr) return;
    lane_.note("rejected", static_cast<std::int64_t>(event.request),
               static_cast<std::int64_t>(event.reason));
    judge(*sent, event);
    end(*sent);
}

FakeClients::Sent* FakeClients::find(actors::SessionId session, actors::RequestId request) {
    const auto found = requests_.find(request);
    if (found == requests_.end() || session != found->second.submit.reply_to.session) {
        fail(request, "an event went to the wrong session");
        return nullptr;
    }
    if (!found->second.ended) return &found->second;
    fail(request, "an event came after the terminal one");
    return nullptr;
}

void FakeClients::end(Sent& sent) {
    sent.ended = true;
    --unended_;
}

void FakeClients::judge(const Sent& sent, const actors::Finished& event) {
    const ExpectedAnswer expected = expected_answer(sent.submit, server_.room, sent.answer);
    if (event.usage.prompt_tokens != sent.submit.prompt.size()) fail(event.request, "wrong usage");
    if (event.usage.generated_tokens < sent.heard.size() ||
        event.usage.generated_tokens > sent.heard.size() + 1) {
        fail(event.request, "usage and tokens disagree");
    }
    const bool complete =
        event.reason == FinishReason::stop || event.reason == FinishReason::length;
    if (complete) {
        if (sent.heard != expected.tokens) fail(event.request, "a wrong answer");
        if (sent.prompt_scores != expected.prompt_scores)
            fail(event.request, "wrong scores of its prompt");
        if (event.reason != expected.reason) fail(event.request, "a wrong reason");
        if (event.cause != expected.cause) fail(event.request, "a wrong cause");
        return;
    }
    const bool is_prefix =
        sent.heard.size() <= expected.tokens.size() &&
        std::ranges::equal(sent.heard, std::span(expected.tokens).first(sent.heard.size()));
    if (!is_prefix) fail(event.request, "a wrong beginning of an answer");
    const bool shut = event.reason == FinishReason::shutdown;
    if (shut && !server_.closing) fail(event.request, "ended by a shutdown that nobody asked for");
    if (event.reason == FinishReason::cancelled && !sent.asked_to_stop) {
        fail(event.request, "cancelled by nobody");
    }
    if (event.reason == FinishReason::deadline && !sent.submit.deadline) {
        fail(event.request, "it had no deadline");
    }
}

void FakeClients::judge(const Sent& sent, const actors::Rejected& event) {
    using Reason = actors::Rejected::Reason;
    const model::DecodingParams& params = sent.submit.params;
    const auto prompt = static_cast<std::uint32_t>(sent.submit.prompt.size());
    const bool draws = !sent.submit.prefill_only && params.max_tokens != 0;
    const bool fits = prompt + (draws ? 1 : 0) <= server_.room.sequence_tokens_max;
    if (event.reason == Reason::never_fits && fits) fail(event.request, "it fits and was refused");
    const auto width = static_cast<std::uint32_t>(params.beam_width);
    const bool narrow = width <= server_.slot_count &&
                        actors::beam_pages(width, prompt, prompt + 1) <= server_.room.pages_total;
    if (event.reason == Reason::too_wide && narrow) fail(event.request, "its beams have room");
    if (event.reason == Reason::shutting_down && !server_.closing) {
        fail(event.request, "it was refused by a server that is not shutting down");
    }
    if (!sent.heard.empty()) fail(event.request, "it was refused after it had begun");
}

void FakeClients::check_all_ended() {
    for (const auto& [id, sent] : requests_) {
        if (!sent.ended) fail(id, "it never ended");
    }
}

void FakeClients::fail(actors::RequestId request, const std::string& what) {
    failures_.push_back("hub " + std::to_string(request >> 32) + ", request " +
                        std::to_string(request & 0xffffffffu) + ": " + what);
}

}  // namespace troupe::simulation
