// Responses by their id: read, deleted, cancelled, listed, and the size of one that is only
// planned. Those at work are the hub's live ones, the others are kept in the archive, which may
// have to read from the disk.
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <utility>

#include "gateway/http_exchange_call.hpp"
#include "gateway/json_writer.hpp"
#include "gateway/wire_client_event.hpp"
#include "gateway/wire_prompt.hpp"
#include "gateway/wire_response.hpp"

namespace troupe::gateway {
namespace {

HttpReply deleted_reply(std::string_view id) {
    std::string out;
    JsonObject object(out);
    object.text("id", id);
    object.text("object", "response.deleted");
    object.boolean("deleted", true);
    object.close();
    return json_reply(std::move(out));
}

HttpReply live_reply(const actors::LiveResponse& live, const ServedModel& served) {
    std::string out;
    append_response(out, live.log.current(), served);
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

HttpReply input_items_reply(std::string_view response_id,
                            const std::vector<model::ChatMessage>& input) {
    const auto item_id = [&](std::size_t index) {
        return fmt::format("msg_{}_in{}", response_id.substr(response_id.find('_') + 1), index);
    };
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

// Asks the archive, whose answer may come later.
class StoredCall final : public HttpCall, private actors::SessionHandler {
 public:
    using MakeReply = std::function<HttpReply(const actors::StoredResponse&)>;

    // `make_reply` is called where the response is there.
    StoredCall(const HttpCallContext& context, std::string_view id, MakeReply make_reply)
        : StoredCall(context) {
        hub_.find_stored(session_, id, principal_,
                         [this, id = std::string(id), make_reply = std::move(make_reply)](
                             const actors::StoredResponse* stored) {
                             reply(stored != nullptr ? make_reply(*stored)
                                                     : error_reply(actors::response_not_found(id)));
                         });
        asked_ = true;
    }

    struct Delete {};
    StoredCall(const HttpCallContext& context, std::string_view id, Delete) : StoredCall(context) {
        const auto live = hub_.live().find(id, principal_);
        if (live) hub_.live().forget(*live);
        hub_.erase_stored(session_, id, principal_,
                          [this, was_live = live != nullptr, id = std::string(id)](bool erased) {
                              reply(erased || was_live
                                        ? deleted_reply(id)
                                        : error_reply(actors::response_not_found(id)));
                          });
        asked_ = true;
    }
    ~StoredCall() override { disconnect(); }

    [[nodiscard]] HttpExchange::Started state() const override { return state_; }
    [[nodiscard]] HttpReply take_reply() override { return std::move(reply_); }
    [[nodiscard]] bool next_chunk(std::string&) override { return false; }
    [[nodiscard]] bool finished() const override { return true; }
    [[nodiscard]] std::size_t pending_bytes() const override { return 0; }
    void disconnect() override { hub_.leave(session_); }

 private:
    explicit StoredCall(const HttpCallContext& context)
        : hub_(context.hub),
          principal_(context.client.principal.id),
          output_ready_(context.output_ready),
          session_(hub_.join(*this)) {}

    void on_event(const actors::SessionEvent&, const actors::Delivery&) override {}
    void on_delivered() override {}
    void on_shutdown() override {}

    void reply(HttpReply reply) {
        reply_ = std::move(reply);
        state_ = HttpExchange::Started::reply;
        if (asked_) output_ready_();
    }

    actors::SessionHub& hub_;
    const std::uint64_t principal_;
    const std::function<void()>& output_ready_;
    const actors::SessionId session_;
    bool asked_ = false;  // the answer did not come at once
    HttpExchange::Started state_ = HttpExchange::Started::undecided;
    HttpReply reply_;
};

std::unique_ptr<HttpCall> make_get_call(const HttpCallContext& context,
                                        const JsonRequest& request) {
    auto resume = read_resume(request);
    if (!resume) return make_reply_call(error_reply(resume.error()));
    const std::string_view stream = query_value(request.query, "stream").value_or("false");
    if (stream == "true") return make_resume_call(context, std::move(*resume));
    if (stream != "false")
        return make_reply_call(error_reply(invalid_parameter(
            "stream",
            fmt::format("stream is \"{}\", but must be true or false.", stream.substr(0, 40)))));
    if (const auto live = context.hub.live().find(request.id, context.client.principal.id))
        return make_reply_call(live_reply(*live, context.served));
    return std::make_unique<StoredCall>(
        context, request.id,
        [](const actors::StoredResponse& stored) { return json_reply(stored.json); });
}

// The call is idempotent: a response that has ended is answered as it is.
std::unique_ptr<HttpCall> make_cancel_call(const HttpCallContext& context,
                                           const JsonRequest& request) {
    const auto live = context.hub.live().find(request.id, context.client.principal.id);
    if (!live || live->log.ended()) return make_get_call(context, request);
    context.hub.live().stop(*live, runtime::StopReason::cancelled);
    actors::Response response = live->log.current();
    response.status = actors::ResponseStatus::cancelled;
    std::string out;
    append_response(out, response, context.served);
    return make_reply_call(json_reply(std::move(out)));
}

std::unique_ptr<HttpCall> make_input_items_call(const HttpCallContext& context,
                                                std::string_view id) {
    const auto live = context.hub.live().find(id, context.client.principal.id);
    if (live) {
        return make_reply_call(
            input_items_reply(id, live->turn != nullptr ? live->turn->input : live->input));
    }
    return std::make_unique<StoredCall>(context, id, [](const actors::StoredResponse& stored) {
        return input_items_reply(stored.id, stored.turn->input);
    });
}

// The prompt is measured here, on the io thread, where the response before it comes from the disk.
std::unique_ptr<HttpCall> make_input_tokens_call(const HttpCallContext& context,
                                                 std::string_view body) {
    auto create = read_create_body(body, context.served);
    if (!create) return make_reply_call(error_reply(create.error()));
    const ServedModel& served = context.served;
    const auto messages = [request = create->request](const actors::Turn* before) {
        return actors::conversation(request.instructions, before, request.input);
    };
    const std::string& previous = create->request.previous_response_id;
    if (!previous.empty())
        return std::make_unique<StoredCall>(
            context, previous, [&served, messages](const actors::StoredResponse& stored) {
                return input_tokens_reply(messages(stored.turn.get()), served);
            });
    auto all = messages(nullptr);
    const std::size_t bytes = prompt_bytes(all);
    return make_maybe_later_call(context, bytes, [&served, all = std::move(all)] {
        return input_tokens_reply(all, served);
    });
}

}  // namespace

std::unique_ptr<HttpCall> make_stored_call(const HttpCallContext& context,
                                           const JsonRequest& request) {
    switch (request.route) {
        case HttpRoute::response_get:
            return make_get_call(context, request);
        case HttpRoute::response_delete:
            return std::make_unique<StoredCall>(context, request.id, StoredCall::Delete{});
        case HttpRoute::response_cancel:
            return make_cancel_call(context, request);
        case HttpRoute::response_input_items:
            return make_input_items_call(context, request.id);
        default:
            return make_input_tokens_call(context, request.body);
    }
}

}  // namespace troupe::gateway
