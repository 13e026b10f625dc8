// The shell of a Responses session: registers with the hub and does what the core asks: makes
// prompts (long ones on a helper thread), looks for kept responses. Used by the socket's
// ClientStream and by the HTTP routes of responses. Lives on its hub's io thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "actors/hub.hpp"
#include "actors/session.hpp"
#include "gateway/served_model.hpp"
#include "gateway/wire_client_event.hpp"
#include "gateway/wire_prompt.hpp"

namespace troupe::gateway {

// A seed below 2^53: a JSON reader that has only doubles can give it back unharmed.
[[nodiscard]] std::uint64_t draw_seed(actors::SessionHub& hub);

class SessionShell final : private actors::SessionHandler {
 public:
    // `output_ready`: after a delivery, or a prompt made elsewhere; never inside a call from
    // outside.
    SessionShell(actors::SessionHub& hub, const ServedModel& served, actors::Principal principal,
                 std::function<void()> output_ready);
    ~SessionShell() override;
    SessionShell(const SessionShell&) = delete;
    SessionShell& operator=(const SessionShell&) = delete;

    // The core, for questions. What changes it goes through the shell.
    [[nodiscard]] const actors::Session& core() const { return core_; }

    void create(WireCreate create);
    // Calls the core, then does what it asks.
    template <class Call>
    void tell(Call call) {
        call(core_);
        perform();
    }
    [[nodiscard]] bool next_event(actors::ServerEvent& out);
    // After a late authentication, before any create.
    void set_principal(actors::Principal principal);

    // Reads no more and leaves the hub. Idempotent.
    void disconnect();

 private:
    void on_event(const actors::SessionEvent&, const actors::Delivery&) override {}
    void on_delivered() override;
    void on_shutdown() override;

    void perform();
    void prepare(actors::PreparePrompt request);
    void prepared(std::uint64_t ticket, WireResult<FittedPrompt> fitted);
    void find(const actors::FindStored& request);

    actors::SessionHub& hub_;
    const ServedModel& served_;
    const std::function<void()> output_ready_;
    actors::Principal principal_;
    const actors::SessionId session_;
    actors::Session core_;
    bool joined_ = true;
    bool performing_ = false;
};

}  // namespace troupe::gateway
