// The shell of a Responses session: registers with the hub, passes deliveries to the core and does
// what the core asks: makes prompts (long ones on a helper thread), submits, cancels. Used by the
// socket's ClientStream and by POST /v1/responses. Lives on its hub's io thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "actors/hub.hpp"
#include "actors/session.hpp"
#include "gateway/served_model.hpp"
#include "gateway/wire_client_event.hpp"
#include "gateway/wire_prompt.hpp"
#include "runtime/clock.hpp"

namespace troupe::gateway {

// A seed below 2^53: a JSON reader that has only doubles can give it back unharmed.
[[nodiscard]] std::uint64_t draw_seed(actors::SessionHub& hub);

class SessionShell final : private actors::SessionHandler {
 public:
    // `output_ready`: after a delivery, or a prompt made elsewhere; never inside a call from
    // outside.
    SessionShell(actors::SessionHub& hub, const ServedModel& served, actors::Principal principal,
                 const runtime::Clock& clock, std::function<void()> output_ready);
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
    [[nodiscard]] std::optional<actors::ServerEvent> next_event();
    // After a late authentication, before any create.
    void set_principal(actors::Principal principal);

    // Cancels everything and leaves the hub. Idempotent.
    void disconnect();

 private:
    void on_event(const actors::SessionEvent& event, const actors::Delivery& delivery) override;
    void on_delivered() override;
    void on_shutdown() override;
    bool cancel_response(std::string_view response_id, std::uint64_t principal) override;

    void perform();
    void prepare(actors::PreparePrompt request);
    void prepared(std::uint64_t ticket, WireResult<FittedPrompt> fitted);
    [[nodiscard]] std::int64_t unix_seconds() const;

    actors::SessionHub& hub_;
    const ServedModel& served_;
    const runtime::Clock& clock_;
    const std::function<void()> output_ready_;
    std::uint64_t principal_;
    const actors::SessionId session_;
    actors::Session core_;
    bool joined_ = true;
};

}  // namespace troupe::gateway
