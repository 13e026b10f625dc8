// What the tests of sessions share: a tokenizer whose tokens are bytes, and a session with a script
// that plays its shell, its hub and the scheduler.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/response_store.hpp"
#include "actors/session.hpp"
#include "model/tokenizer.hpp"

namespace troupe::test {

// Ids 0-255 are the bytes; 256 ends an answer.
class ByteTokenizer final : public model::Tokenizer {
 public:
    ByteTokenizer() {
        for (std::size_t byte = 0; byte < 256; ++byte)
            bytes_[byte] = static_cast<char>(byte);
    }
    void encode(std::string_view text, std::vector<model::TokenId>& out) const override {
        for (const char byte : text)
            out.push_back(static_cast<unsigned char>(byte));
    }
    [[nodiscard]] std::optional<model::ControlMatch> next_control(std::string_view,
                                                                  std::size_t) const override {
        return std::nullopt;
    }
    [[nodiscard]] std::string_view piece(model::TokenId id) const override {
        return id == 256 ? std::string_view("<|end|>") : bytes_of(id);
    }
    [[nodiscard]] std::string_view bytes_of(model::TokenId id) const override {
        if (id == 256) return {};
        return std::string_view(bytes_.data(), bytes_.size())
            .substr(static_cast<std::size_t>(id), 1);
    }
    [[nodiscard]] bool is_control(model::TokenId id) const override { return id == 256; }
    [[nodiscard]] model::TokenId vocabulary_size() const override { return 257; }
    [[nodiscard]] std::optional<model::TokenId> find(std::string_view text) const override {
        if (text == "<|end|>") return 256;
        if (text.size() == 1) return static_cast<unsigned char>(text[0]);
        return std::nullopt;
    }
    [[nodiscard]] std::optional<model::TokenId> bos() const override { return std::nullopt; }
    [[nodiscard]] std::optional<model::TokenId> eos() const override { return 256; }
    [[nodiscard]] std::span<const model::TokenId> end_tokens() const override { return end_; }
    [[nodiscard]] bool add_bos() const override { return false; }

 private:
    std::array<char, 256> bytes_{};
    std::array<model::TokenId, 1> end_{256};
};

// Every token carries a log-probability of -(its byte) / 100 and one rival, the end token.
inline actors::Delivery text_delivery(actors::SessionId session, actors::RequestId request,
                                      std::uint32_t first_index, std::string_view text) {
    actors::Delivery delivery;
    for (const char byte : text) {
        const auto id = static_cast<unsigned char>(byte);
        delivery.tokens.push_back({.id = id,
                                   .logprob = -static_cast<float>(id) / 100,
                                   .top_begin = static_cast<std::uint32_t>(delivery.top.size()),
                                   .top_count = 1});
        delivery.top.push_back({256, -3.5F});
    }
    delivery.events.emplace_back(
        actors::TokenRun{.session = session,
                         .request = request,
                         .first_index = first_index,
                         .begin = 0,
                         .count = static_cast<std::uint32_t>(text.size())});
    return delivery;
}

// One word an event: "created", "delta(text)", "lane:error(code)", ...
inline std::string story_word(const actors::ServerEvent& event) {
    using namespace actors;
    struct Word {
        std::string operator()(const ResponseChanged& c) const {
            static constexpr std::array kNames{"created",   "queued",     "in_progress",
                                               "completed", "incomplete", "failed"};
            std::string word = kNames[static_cast<std::size_t>(c.kind)];
            if (c.queue_position) word += "(" + std::to_string(*c.queue_position) + ")";
            if (c.progress) word += "(" + std::to_string(c.progress->prompt_done) + ")";
            if (c.kind == ResponseChanged::Kind::in_progress && c.response.has_output)
                word += "(" + c.response.text + ")";
            if (c.response.status == ResponseStatus::cancelled) word += "(cancelled)";
            return word;
        }
        std::string operator()(const StoredEnd& e) const {
            return e.completed ? "stored_completed" : "stored_incomplete";
        }
        std::string operator()(const ItemAdded&) const { return "item+"; }
        std::string operator()(const PartAdded&) const { return "part+"; }
        std::string operator()(const TextDelta& d) const { return "delta(" + d.delta + ")"; }
        std::string operator()(const TextDone& d) const { return "text(" + d.text + ")"; }
        std::string operator()(const PartDone&) const { return "part"; }
        std::string operator()(const ItemDone& d) const {
            return d.completed ? "item" : "item(incomplete)";
        }
        std::string operator()(const ErrorEvent& e) const { return "error(" + e.error.code + ")"; }
        std::string operator()(const Pong& p) const { return "pong(" + p.t_json + ")"; }
        std::string operator()(const SteerFailed&) const { return "steer_failed"; }
    };
    std::string word = std::visit(Word{}, event.body);
    return event.stream_id ? *event.stream_id + ":" + word : word;
}

// Live responses and what is kept of them, with the test as the hub and as the scheduler.
class LiveScript : public actors::LiveResponses::Outside {
 public:
    explicit LiveScript(actors::LiveLimits limits = {}) : live({0, 0}, *this, limits) {}

    void submit(actors::Submit submit) override { submits.push_back(std::move(submit)); }
    void cancel(actors::RequestId request) override { cancels.push_back(request); }
    actors::Keeping keep(actors::EndedResponse ended) override {
        if (keeping != actors::Keeping::refused) {
            store.put({.principal = ended.principal,
                       .id = ended.response.id,
                       .created_at = ended.response.created_at,
                       .completed = ended.response.status == actors::ResponseStatus::completed,
                       .last_sequence = ended.last_sequence,
                       .json = ended.response.text,
                       .turn = ended.turn});
        }
        return keeping;
    }

    void tokens(actors::RequestId request, std::string_view text) {
        std::uint32_t& told = tokens_told[request];
        const auto delivery = text_delivery(0, request, told, text);
        told += static_cast<std::uint32_t>(text.size());
        live.deliver(delivery.events[0], delivery, 1001, touched);
    }

    void deliver(const actors::SessionEvent& event) { live.deliver(event, {}, 1002, touched); }

    void finish(actors::RequestId request,
                actors::FinishReason reason = actors::FinishReason::stop) {
        actors::Finished finished;
        finished.request = request;
        finished.reason = reason;
        finished.usage = {
            .prompt_tokens = 9, .cached_tokens = 4, .generated_tokens = tokens_told[request] + 1};
        deliver(finished);
    }

    ByteTokenizer tokenizer;
    actors::ResponseStore store{100, 1 << 20};
    actors::Keeping keeping = actors::Keeping::kept;
    actors::LiveResponses live;
    std::vector<actors::SessionId> touched;  // readers that the hub would wake
    std::vector<actors::Submit> submits;
    std::vector<actors::RequestId> cancels;
    std::map<actors::RequestId, std::uint32_t> tokens_told;
    actors::RequestId next_request = 1;
};

// A session among live responses that it may share with others, with the test as its shell.
class SessionScript {
 public:
    explicit SessionScript(actors::SessionLimits limits = {})
        : own(std::make_unique<LiveScript>()),
          hub(*own),
          principal(7),
          session(1, {.id = 7, .weight = 1}, limits, hub.live, hub.tokenizer) {}
    SessionScript(LiveScript& shared, actors::SessionId id, std::uint64_t whose = 7)
        : hub(shared),
          principal(whose),
          session(id, {.id = whose, .weight = 1}, {}, hub.live, hub.tokenizer) {}

    static actors::CreateRequest request(std::string text,
                                         std::optional<std::string> stream_id = std::nullopt) {
        actors::CreateRequest create;
        create.stream_id = std::move(stream_id);
        create.input.push_back({.role = "user", .content = std::move(text)});
        return create;
    }

    void create(actors::CreateRequest create) {
        session.create(std::move(create));
        perform();
    }

    // Does what the session asks. A prompt is "role=content;" of each message, a byte a token.
    void perform() {
        for (auto actions = session.take_actions(); !actions.empty();
             actions = session.take_actions()) {
            for (actors::SessionAction& action : actions) {
                if (const auto* find = std::get_if<actors::FindStored>(&action)) {
                    session.found(find->ticket, hub.store.find(find->id, principal));
                } else if (hold_prompts) {
                    held.push_back(std::move(std::get<actors::PreparePrompt>(action)));
                } else {
                    prepared(std::get<actors::PreparePrompt>(action));
                }
            }
        }
    }

    void prepared(const actors::PreparePrompt& prepare) {
        std::string text;
        for (const auto& message : prepare.messages)
            text += message.role + "=" + message.content + ";";
        prompts.push_back(text);
        actors::PreparedPrompt prompt;
        prompt.ticket = prepare.ticket;
        prompt.request = hub.next_request++;
        prompt.id_suffix = std::to_string(prompt.request);
        prompt.unix_seconds = 1000;
        if (text.find("too long") != std::string::npos) {
            prompt.error = actors::RequestError{.status = 400,
                                                .code = "context_length_exceeded",
                                                .message = "too long",
                                                .param = {}};
        }
        hub.tokenizer.encode(text, prompt.tokens);
        session.prepared(std::move(prompt));
    }

    void release_prompts() {
        hold_prompts = false;
        for (const auto& prepare : std::exchange(held, {}))
            prepared(prepare);
        perform();
    }

    void tokens(actors::RequestId request, std::string_view text) { hub.tokens(request, text); }
    void deliver(const actors::SessionEvent& event) { hub.deliver(event); }
    void finish(actors::RequestId request,
                actors::FinishReason reason = actors::FinishReason::stop) {
        hub.finish(request, reason);
    }

    // Everything that is to be told now.
    std::vector<actors::ServerEvent> pull() {
        std::vector<actors::ServerEvent> events;
        for (actors::ServerEvent event; session.next_event(event);) {
            events.push_back(event);
            perform();
        }
        perform();
        return events;
    }
    std::string story() {
        std::string words;
        for (const auto& event : pull()) {
            if (!words.empty()) words += " ";
            words += story_word(event);
        }
        return words;
    }

    std::unique_ptr<LiveScript> own;  // where it shares none
    LiveScript& hub;
    const std::uint64_t principal;
    actors::Session session;
    bool hold_prompts = false;
    std::deque<actors::PreparePrompt> held;
    std::vector<std::string> prompts;
    std::vector<actors::Submit>& submits = hub.submits;
    std::vector<actors::RequestId>& cancels = hub.cancels;
    actors::ResponseStore& store = hub.store;
};

}  // namespace troupe::test
