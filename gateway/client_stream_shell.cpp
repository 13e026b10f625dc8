#include "gateway/client_stream_shell.hpp"

#include <memory>
#include <utility>


namespace troupe::gateway {

std::uint64_t draw_seed(actors::SessionHub& hub) {
    return hub.random().low >> 11U;
}

SessionShell::SessionShell(actors::SessionHub& hub, const ServedModel& served,
                           actors::Principal principal, const runtime::Clock& clock,
                           std::function<void()> output_ready)
    : hub_(hub),
      served_(served),
      clock_(clock),
      output_ready_(std::move(output_ready)),
      principal_(principal.id),
      session_(hub.join(*this)),
      core_(hub.address_of(session_), principal, served.session_limits, hub.responses(),
            served.tokenizer) {
    if (hub.draining()) core_.drain();
}

SessionShell::~SessionShell() {
    disconnect();
}

void SessionShell::create(WireCreate create) {
    if (!create.seed_given) create.request.params.seed = draw_seed(hub_);
    if (create.deadline) create.request.deadline = clock_.now() + *create.deadline;
    core_.create(std::move(create.request));
    perform();
}

std::optional<actors::ServerEvent> SessionShell::next_event() {
    auto event = core_.next_event();
    perform();
    return event;
}

void SessionShell::set_principal(actors::Principal principal) {
    principal_ = principal.id;
    core_.set_principal(principal);
}

void SessionShell::disconnect() {
    if (!std::exchange(joined_, false)) return;
    core_.disconnect();
    perform();
    hub_.leave(session_);
}

void SessionShell::on_event(const actors::SessionEvent& event, const actors::Delivery& delivery) {
    core_.deliver(event, delivery, unix_seconds());
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

bool SessionShell::cancel_response(std::string_view response_id, std::uint64_t principal) {
    if (principal != principal_ || !core_.cancel_response(response_id)) return false;
    perform();
    return true;
}

// Making a short prompt answers at once, which may ask for more.
void SessionShell::perform() {
    for (auto actions = core_.take_actions(); !actions.empty(); actions = core_.take_actions()) {
        for (actors::SessionAction& action : actions) {
            if (auto* request = std::get_if<actors::PreparePrompt>(&action)) {
                prepare(std::move(*request));
            } else if (auto* submit = std::get_if<actors::Submit>(&action)) {
                hub_.submit(std::move(*submit));
            } else {
                hub_.cancel(std::get<actors::Cancel>(action).request);
            }
        }
    }
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
                                  .error = {},
                                  .request = hub_.next_request(),
                                  .id_suffix = hub_.random_hex(),
                                  .unix_seconds = unix_seconds()};
    if (fitted && !hub_.has_room(1)) {
        prompt.error = actors::too_many_requests_error();
    } else if (fitted) {
        prompt.tokens = std::move(fitted->tokens);
        prompt.dropped_messages = fitted->dropped_messages;
    } else {
        prompt.error = fitted.error();
    }
    core_.prepared(std::move(prompt));
}

std::int64_t SessionShell::unix_seconds() const {
    return served_.unix_seconds(clock_.now());
}

}  // namespace troupe::gateway
