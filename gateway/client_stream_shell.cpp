#include "gateway/client_stream_shell.hpp"

#include <memory>
#include <utility>

namespace troupe::gateway {

std::uint64_t draw_seed(actors::SessionHub& hub) {
    return hub.random().low >> 11U;
}

SessionShell::SessionShell(actors::SessionHub& hub, const ServedModel& served,
                           actors::Principal principal, std::function<void()> output_ready)
    : hub_(hub),
      served_(served),
      output_ready_(std::move(output_ready)),
      principal_(principal),
      session_(hub.join(*this)),
      core_(session_, principal, served.session_limits, hub.live(), served.tokenizer) {
    if (hub.draining()) core_.drain();
}

SessionShell::~SessionShell() {
    disconnect();
}

void SessionShell::create(WireCreate create) {
    if (!create.seed_given) create.request.params.seed = draw_seed(hub_);
    if (create.deadline) create.request.deadline = hub_.now() + *create.deadline;
    core_.create(std::move(create.request));
    perform();
}

bool SessionShell::next_event(actors::ServerEvent& out) {
    const bool told = core_.next_event(out);
    perform();
    return told;
}

void SessionShell::set_principal(actors::Principal principal) {
    principal_ = principal;
    core_.set_principal(principal);
}

void SessionShell::disconnect() {
    if (!std::exchange(joined_, false)) return;
    core_.disconnect();
    perform();
    hub_.leave(session_);
}

void SessionShell::on_delivered() {
    perform();
    output_ready_();
}

void SessionShell::on_shutdown() {
    core_.drain();
    perform();
    output_ready_();
}

// What is answered at once may ask for more.
void SessionShell::perform() {
    performing_ = true;
    for (auto actions = core_.take_actions(); !actions.empty(); actions = core_.take_actions()) {
        for (actors::SessionAction& action : actions) {
            if (auto* request = std::get_if<actors::PreparePrompt>(&action)) {
                prepare(std::move(*request));
            } else {
                find(std::get<actors::FindStored>(action));
            }
        }
    }
    performing_ = false;
}

void SessionShell::find(const actors::FindStored& request) {
    hub_.find_stored(session_, request.id, principal_.id,
                     [this, ticket = request.ticket](const actors::StoredResponse* stored) {
                         core_.found(ticket, stored);
                         if (performing_) return;
                         perform();
                         output_ready_();
                     });
}

void SessionShell::prepare(actors::PreparePrompt request) {
    const std::uint64_t ticket = request.ticket;
    if (prompt_bytes(request.messages) <= served_.limits.offload_bytes)
        return prepared(ticket, make_prompt(request.messages, request.fit, served_));
    auto made = std::make_shared<std::optional<WireResult<FittedPrompt>>>();
    auto asked = std::make_shared<const actors::PreparePrompt>(std::move(request));
    hub_.offload(
        session_,
        [&served = served_, asked, made] {
            *made = make_prompt(asked->messages, asked->fit, served);
        },
        [this, ticket, made] {
            prepared(ticket, std::move(**made));
            perform();
            output_ready_();
        });
}

void SessionShell::prepared(std::uint64_t ticket, WireResult<FittedPrompt> fitted) {
    actors::PreparedPrompt prompt{.ticket = ticket,
                                  .tokens = {},
                                  .dropped_messages = 0,
                                  .system_in_user = false,
                                  .error = {},
                                  .request = hub_.next_request(),
                                  .id_suffix = hub_.random_hex(),
                                  .unix_seconds = hub_.unix_seconds()};
    if (fitted) {
        prompt.tokens = std::move(fitted->tokens);
        prompt.dropped_messages = fitted->dropped_messages;
        prompt.system_in_user = fitted->system_in_user;
        prompt.error = hub_.refuse(principal_, 1);
    } else {
        prompt.error = fitted.error();
    }
    core_.prepared(std::move(prompt));
}

}  // namespace troupe::gateway
