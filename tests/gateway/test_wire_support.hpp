// What the gateway's tests share: a served model whose tokens are bytes and whose template is
// plain, and a hub whose scheduler is the test.
#pragma once

#include <boost/json.hpp>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "actors/hub.hpp"
#include "gateway/client_stream.hpp"
#include "gateway/served_model.hpp"
#include "gateway/wire_response.hpp"
#include "tests/actors/test_session_support.hpp"

namespace troupe::test {

inline model::ChatTemplate plain_template() {
    auto compiled = model::ChatTemplate::compile(
        "{% for m in messages %}{{ m['role'] + '=' + m['content'] + ';' }}{% endfor %}", "", "");
    return std::move(compiled.value());
}

struct ServedFixture {
    ServedFixture() {
        served.id = "tiny";
        served.aliases = {"pet"};
        served.context_length = 4096;
        served.system_fingerprint = "fp_1";
        served.created_at = 5;
    }
    ByteTokenizer tokenizer;
    model::ChatTemplate chat_template = plain_template();
    gateway::ServedModel served{.tokenizer = tokenizer, .chat_template = chat_template};
};

// A hub, with the test as its scheduler and its helper thread.
struct HubFixture : ServedFixture {
    // What has been submitted or cancelled since the last call.
    void collect() {
        std::vector<actors::SchedulerMessage> batch;
        inbox.drain(batch);
        for (auto& message : batch) {
            if (auto* submit = std::get_if<actors::Submit>(&message)) {
                submits.push_back(std::move(*submit));
            } else if (auto* cancel = std::get_if<actors::Cancel>(&message)) {
                cancels.push_back(cancel->request);
            }
        }
    }
    // The text of a submitted prompt, whose tokens are bytes.
    [[nodiscard]] std::string prompt(std::size_t index) const {
        std::string text;
        for (const auto token : submits.at(index).prompt)
            text += static_cast<char>(token);
        return text;
    }
    void tokens(std::size_t index, std::string_view text) {
        const auto& submit = submits.at(index);
        std::uint32_t& told = told_[submit.request];
        hub.on(text_delivery(submit.reply_to.session, submit.request, told, text));
        told += static_cast<std::uint32_t>(text.size());
    }
    // How likely `count` tokens of the prompt were, the first of them in place `first`: e^-place.
    void scores(std::size_t index, std::uint32_t first, std::uint32_t count) {
        const auto& submit = submits.at(index);
        actors::Delivery delivery;
        delivery.events.push_back(actors::PromptScores{.session = submit.reply_to.session,
                                                       .request = submit.request,
                                                       .first_index = first,
                                                       .begin = 0,
                                                       .count = count});
        for (std::uint32_t place = first; place < first + count; ++place) {
            delivery.tokens.push_back({.id = submit.prompt.at(place),
                                       .logprob = -static_cast<float>(place),
                                       .top_begin = place - first,
                                       .top_count = 1});
            delivery.top.push_back({submit.prompt.at(place), -static_cast<float>(place)});
        }
        hub.on(delivery);
    }
    void finish(std::size_t index, actors::FinishReason reason = actors::FinishReason::stop,
                actors::StopCause cause = {}) {
        const auto& submit = submits.at(index);
        actors::Finished finished;
        finished.session = submit.reply_to.session;
        finished.request = submit.request;
        finished.reason = reason;
        finished.cause = cause;
        finished.usage = {.prompt_tokens = static_cast<std::uint32_t>(submit.prompt.size()),
                          .cached_tokens = 2,
                          .generated_tokens = told_[submit.request],
                          .draft_tokens = 4,
                          .accepted_tokens = 3};
        finished.prefill_ns = 5'000'000;
        finished.decode_ns = 10'000'000;
        deliver(finished);
    }
    void reject(std::size_t index, actors::Rejected::Reason reason) {
        const auto& submit = submits.at(index);
        deliver(actors::Rejected{.session = submit.reply_to.session,
                                 .request = submit.request,
                                 .reason = reason,
                                 .message = "no",
                                 .retry_after_ms = 1500});
    }
    void deliver(actors::SessionEvent event) {
        actors::Delivery delivery;
        delivery.events.push_back(std::move(event));
        hub.on(delivery);
    }
    void run_helpers() {
        for (auto& job : std::exchange(jobs, {}))
            job();
    }

    runtime::VirtualClock clock;
    runtime::Mailbox<actors::SchedulerMessage> inbox{{.normal_max = 200, .control_max = 200}};
    std::vector<std::function<void()>> jobs;
    std::uint64_t random_calls = 0;
    actors::SessionHub hub{{.index = 0,
                            .recent_responses_max = 100,
                            .recent_bytes_max = 1 << 20,
                            .write_response =
                                [this](const actors::Response& response) {
                                    std::string json;
                                    gateway::append_response(json, response, served);
                                    return json;
                                },
                            .unix_seconds = [] { return 1000; },
                            .now = [this] { return clock.now(); },
                            .random =
                                [this] {
                                    return actors::RandomBits{++random_calls, random_calls << 11U};
                                }},
                           runtime::Address<actors::SchedulerMessage>(inbox),
                           [this](std::function<void()> work, std::function<void()> done) {
                               jobs.push_back([work = std::move(work), done = std::move(done)] {
                                   work();
                                   done();
                               });
                           }};
    std::vector<actors::Submit> submits;
    std::vector<actors::RequestId> cancels;

 private:
    std::map<actors::RequestId, std::uint32_t> told_;
};

inline gateway::ClientContext client(std::uint64_t principal = 1) {
    return {.principal = {.id = principal, .weight = 1},
            .authenticated = true,
            .troupe_protocol = false,
            .connection_id = "c1"};
}

inline std::string json_string(std::string_view text) {
    return boost::json::serialize(
        boost::json::value(boost::json::string_view(text.data(), text.size())));
}

}  // namespace troupe::test
