// FakeClients: all sessions of one hub in a simulation, on one io lane. They submit requests of
// every kind, cancel them at any point, read slowly, go away, and judge what they hear: each
// request gets one terminal event, its tokens come in order and are those of the expected answer.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "model/attention_window.hpp"
#include "runtime/address.hpp"
#include "runtime/mailbox.hpp"
#include "runtime/sim.hpp"
#include "tools/simulation/expected_answer.hpp"

namespace troupe::simulation {

// What the clients know of the server.
struct ServerFacts {
    Room room;
    std::uint32_t slot_count = 0;
    bool closing = false;  // shutdown was asked for, or the engine has given up
};

class FakeClients {
 public:
    FakeClients(runtime::Simulation& simulation, runtime::SimLane& lane, std::uint32_t hub,
                const ServerFacts& server, std::vector<std::string>& failures);

    [[nodiscard]] runtime::Address<actors::HubMessage> address() {
        return runtime::Address<actors::HubMessage>(inbox_);
    }

    // Submits `requests` over time.
    void start(runtime::Address<actors::SchedulerMessage> scheduler, std::uint32_t requests);
    void close() { inbox_.close(); }

    // Everything has been submitted, and has ended.
    [[nodiscard]] bool done() const { return all_submitted_ && unended_ == 0; }
    // Names what has not ended.
    void check_all_ended();

    [[nodiscard]] std::uint32_t submitted() const {
        return static_cast<std::uint32_t>(requests_.size());
    }
    [[nodiscard]] std::uint64_t tokens_heard() const { return tokens_heard_; }

 private:
    struct Sent {
        actors::Submit submit;
        std::vector<model::TokenId> heard;
        std::vector<float> prompt_scores;
        std::uint32_t answer = 0;  // of those of a beam search, each with an id of its own
        bool ended = false;
        bool asked_to_stop = false;
    };

    [[nodiscard]] boost::asio::awaitable<void> submit_all(std::uint32_t requests);
    [[nodiscard]] boost::asio::awaitable<void> cancel_later(actors::RequestId id);
    [[nodiscard]] boost::asio::awaitable<void> listen();

    [[nodiscard]] actors::Submit make_request();
    void ask_for_beams(actors::Submit& submit);
    [[nodiscard]] std::vector<model::TokenId> make_prompt();
    [[nodiscard]] model::DecodingParams make_params();
    void send(actors::Submit submit);
    void cancel(actors::RequestId id, runtime::StopReason reason);

    void hear(const actors::Delivery& delivery, const actors::Queued& event);
    void hear(const actors::Delivery& delivery, const actors::PromptProgress& event);
    void hear(const actors::Delivery& delivery, const actors::TokenRun& event);
    void hear(const actors::Delivery& delivery, const actors::PromptScores& event);
    void hear(const actors::Delivery& delivery, const actors::Finished& event);
    void hear(const actors::Delivery& delivery, const actors::Rejected& event);
    [[nodiscard]] Sent* find(actors::SessionId session, actors::RequestId request);
    void end(Sent& sent);
    void judge(const Sent& sent, const actors::Finished& event);
    void judge(const Sent& sent, const actors::Rejected& event);
    void fail(actors::RequestId request, const std::string& what);

    runtime::Simulation& simulation_;
    runtime::SimLane& lane_;
    const std::uint32_t hub_;
    const ServerFacts& server_;
    std::vector<std::string>& failures_;
    runtime::Mailbox<actors::HubMessage> inbox_;
    std::optional<runtime::Address<actors::SchedulerMessage>> scheduler_;
    std::map<actors::RequestId, Sent> requests_;
    std::vector<model::TokenId> last_conversation_;  // prompt and answer of one that finished
    std::uint32_t unended_ = 0;
    std::uint64_t tokens_heard_ = 0;
    bool all_submitted_ = false;
};

}  // namespace troupe::simulation
