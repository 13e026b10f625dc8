// Responses that were kept: read, deleted, cancelled, listed, and the size of one that is only
// planned.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "gateway/http_exchange_call.hpp"
#include "gateway/json_writer.hpp"
#include "gateway/wire_client_event.hpp"
#include "gateway/wire_prompt.hpp"
#include "gateway/wire_response.hpp"

namespace troupe::gateway {
namespace {

HttpReply json_reply(std::string body) {
    return {.status = 200, .body = std::move(body), .headers = {}};
}

HttpReply no_response(std::string_view id) {
    return error_reply({.status = 404,
                        .code = "response_not_found",
                        .message = fmt::format("There is no response \"{}\".", id.substr(0, 100)),
                        .param = "response_id"});
}

HttpReply get_response(const HttpCallContext& context, const JsonRequest& request) {
    if (request.query.find("stream=true") != std::string_view::npos)
        return error_reply(
            unsupported("stream", "Streaming a response again is not supported by this server."));
    const auto* stored = context.hub.responses().find(request.id, context.client.principal.id);
    if (stored == nullptr) return no_response(request.id);
    std::string out;
    append_response(out, stored->response, context.served);
    return json_reply(std::move(out));
}

HttpReply delete_response(const HttpCallContext& context, std::string_view id) {
    if (!context.hub.responses().erase(id, context.client.principal.id)) return no_response(id);
    std::string out;
    JsonObject object(out);
    object.text("id", id);
    object.text("object", "response.deleted");
    object.boolean("deleted", true);
    object.close();
    return json_reply(std::move(out));
}

// The call is idempotent: a response that has ended is answered as it is.
HttpReply cancel_response(const HttpCallContext& context, const JsonRequest& request) {
    const std::uint64_t principal = context.client.principal.id;
    if (context.hub.responses().find(request.id, principal) != nullptr)
        return get_response(context, request);
    if (!context.hub.cancel_response(request.id, principal)) return no_response(request.id);
    std::string out;
    JsonObject object(out);
    object.text("id", request.id);
    object.text("object", "response");
    object.text("status", "cancelled");
    object.close();
    return json_reply(std::move(out));
}

void append_input_item(std::string& out, const model::ChatMessage& message, std::string id) {
    JsonObject item(out);
    item.text("id", id);
    item.text("type", "message");
    item.text("status", "completed");
    item.text("role", message.role);
    item.field("content") += '[';
    JsonObject part(out);
    const bool is_answer = message.role == "assistant";
    part.text("type", is_answer ? "output_text" : "input_text");
    part.text("text", message.content);
    if (is_answer) part.json("annotations", "[]");
    part.close();
    out += ']';
    item.close();
}

HttpReply list_input_items(const HttpCallContext& context, std::string_view id) {
    const auto* stored = context.hub.responses().find(id, context.client.principal.id);
    if (stored == nullptr) return no_response(id);
    const auto item_id = [&](std::size_t index) {
        return fmt::format("{}_in{}", stored->response.item_id, index);
    };
    const auto& input = stored->turn->input;
    std::string out;
    JsonObject object(out);
    object.text("object", "list");
    object.field("data") += '[';
    for (std::size_t i = 0; i < input.size(); ++i) {
        if (i > 0) out += ',';
        append_input_item(out, input[i], item_id(i));
    }
    out += ']';
    if (input.empty()) {
        object.null("first_id");
        object.null("last_id");
    } else {
        object.text("first_id", item_id(0));
        object.text("last_id", item_id(input.size() - 1));
    }
    object.boolean("has_more", false);
    object.close();
    return json_reply(std::move(out));
}

HttpReply input_tokens_reply(const std::vector<model::ChatMessage>& messages,
                             const ServedModel& served) {
    auto tokens = template_tokens(messages, served);
    if (!tokens) return error_reply(tokens.error());
    std::string out;
    JsonObject object(out);
    object.text("object", "response.input_tokens");
    object.integer("input_tokens", tokens->size());
    object.close();
    return json_reply(std::move(out));
}

std::unique_ptr<HttpCall> make_input_tokens_call(const HttpCallContext& context,
                                                 std::string_view body) {
    auto create = read_create_body(body, context.served);
    if (!create) return make_reply_call(error_reply(create.error()));
    std::shared_ptr<const actors::Turn> before;
    if (const std::string& previous = create->request.previous_response_id; !previous.empty()) {
        const auto* stored = context.hub.responses().find(previous, context.client.principal.id);
        if (stored == nullptr)
            return make_reply_call(error_reply(actors::previous_response_not_found(previous)));
        before = stored->turn;
    }
    auto messages =
        actors::conversation(create->request.instructions, before.get(), create->request.input);
    const std::size_t bytes = prompt_bytes(messages);
    return make_maybe_later_call(context, bytes,
                                 [&served = context.served, messages = std::move(messages)] {
                                     return input_tokens_reply(messages, served);
                                 });
}

}  // namespace

std::unique_ptr<HttpCall> make_stored_call(const HttpCallContext& context,
                                           const JsonRequest& request) {
    switch (request.route) {
        case HttpRoute::response_get:
            return make_reply_call(get_response(context, request));
        case HttpRoute::response_delete:
            return make_reply_call(delete_response(context, request.id));
        case HttpRoute::response_cancel:
            return make_reply_call(cancel_response(context, request));
        case HttpRoute::response_input_items:
            return make_reply_call(list_input_items(context, request.id));
        default:
            return make_input_tokens_call(context, request.body);
    }
}

}  // namespace troupe::gateway
