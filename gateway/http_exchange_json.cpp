// The small JSON routes about the model: its names, tokenizer and template. A large body is worked
// on by a helper thread; everything else is answered at once.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "gateway/http_exchange_call.hpp"
#include "gateway/json_writer.hpp"
#include "gateway/wire_messages.hpp"
#include "gateway/wire_params.hpp"
#include "gateway/wire_prompt.hpp"
#include "model/text_stream.hpp"

namespace troupe::gateway {
namespace {

using Tokens = std::vector<model::TokenId>;

// The body as an object, read by `read`; its error becomes the reply.
HttpReply with_body(const ServedModel& served, std::string_view body,
                    const std::function<WireResult<std::string>(const JsonFields&)>& read) {
    std::string answer;
    const auto done =
        with_json(body, served.limits.depth_max, [&](const JsonElement& root) -> WireResult<> {
            auto fields = JsonFields::of(root, "body");
            if (!fields) return fields.error();
            if (auto known = check_model(*fields, served); !known) return known;
            TROUPE_TRY_ASSIGN(answer, read(*fields));
            return {};
        });
    if (!done) return error_reply(done.error());
    return json_reply(std::move(answer));
}

std::string tokens_body(const Tokens& tokens, const ServedModel& served, bool with_pieces) {
    std::string out;
    JsonObject object(out);
    object.field("tokens") += '[';
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (i > 0) out += ',';
        append_json_integer(out, tokens[i]);
    }
    out += ']';
    object.integer("count", tokens.size());
    object.integer("max_model_len", served.context_length);
    if (with_pieces) {
        object.field("token_strs") += '[';
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (i > 0) out += ',';
            append_json_string(out, token_text(served.tokenizer, tokens[i]));
        }
        out += ']';
    } else {
        object.null("token_strs");
    }
    object.close();
    return out;
}

// {content, add_special, with_pieces} or {prompt | messages, add_special_tokens,
// return_token_strs}.
WireResult<std::string> tokenize(const JsonFields& fields, const ServedModel& served) {
    std::optional<bool> flag;
    TROUPE_TRY_ASSIGN(flag, fields.boolean("with_pieces"));
    bool with_pieces = flag.value_or(false);
    TROUPE_TRY_ASSIGN(flag, fields.boolean("return_token_strs"));
    with_pieces = flag.value_or(with_pieces);
    std::optional<bool> special_before_content, special_before_prompt;
    TROUPE_TRY_ASSIGN(special_before_content, fields.boolean("add_special"));
    TROUPE_TRY_ASSIGN(special_before_prompt, fields.boolean("add_special_tokens"));
    if (const auto messages = fields.find("messages")) {
        auto read = read_chat_messages(*messages);
        if (!read) return read.error();
        auto tokens = template_tokens(*read, served);
        if (!tokens) return tokens.error();
        return tokens_body(*tokens, served, with_pieces);
    }
    std::optional<std::string> text;
    TROUPE_TRY_ASSIGN(text, fields.string("content"));
    bool add_special = special_before_content.value_or(false);
    if (!text) {
        TROUPE_TRY_ASSIGN(text, fields.string("prompt"));
        add_special = special_before_prompt.value_or(true);
    }
    if (!text)
        return invalid_parameter("content", "One of content, prompt and messages must be there.");
    Tokens tokens;
    if (add_special && served.tokenizer.add_bos() && served.tokenizer.bos())
        tokens.push_back(*served.tokenizer.bos());
    served.tokenizer.encode(*text, tokens);
    return tokens_body(tokens, served, with_pieces);
}

// {tokens}: the text, under the names that both kinds of client look for.
WireResult<std::string> detokenize(const JsonFields& fields, const ServedModel& served) {
    const auto value = fields.find("tokens");
    simdjson::dom::array list;
    if (!value || value->get(list) != simdjson::SUCCESS)
        return invalid_parameter("tokens", "tokens must be a list of token ids.");
    auto stream = model::TextStream::make(served.tokenizer, {});
    if (!stream) return invalid_parameter("tokens", stream.error().message);
    std::string text;
    for (const JsonElement element : list) {
        std::int64_t id = 0;
        if (element.get(id) != simdjson::SUCCESS || id < 0 ||
            id >= served.tokenizer.vocabulary_size())
            return invalid_parameter(
                "tokens", fmt::format("tokens holds {}, but a token id is an integer between 0 "
                                      "and {}.",
                                      excerpt(element), served.tokenizer.vocabulary_size() - 1));
        const auto token = static_cast<model::TokenId>(id);
        stream->feed(std::span(&token, 1), text);
    }
    stream->finish(text, model::PartialTail::replace);
    std::string out;
    JsonObject object(out);
    object.text("content", text);
    object.text("prompt", text);
    object.close();
    return out;
}

WireResult<std::string> apply_template(const JsonFields& fields, const ServedModel& served) {
    const auto messages = fields.find("messages");
    if (!messages) return invalid_parameter("messages", "messages is absent.");
    auto read = read_chat_messages(*messages);
    if (!read) return read.error();
    std::string tools;
    TROUPE_TRY_ASSIGN(tools, read_tools(fields));
    auto text = template_text(*read, served, tools);
    if (!text) return text.error();
    std::string out;
    JsonObject object(out);
    object.text("prompt", *text);
    object.close();
    return out;
}

// What a client needs to build prompts by itself, under the names of a tokenizer_config.json.
HttpReply tokenizer_info(const ServedModel& served) {
    const model::Tokenizer& tokenizer = served.tokenizer;
    std::string out;
    JsonObject object(out);
    const auto piece = [&](std::string_view name, std::optional<model::TokenId> id) {
        if (id) {
            object.text(name, tokenizer.piece(*id));
        } else {
            object.null(name);
        }
    };
    piece("bos_token", tokenizer.bos());
    piece("eos_token", tokenizer.eos());
    piece("pad_token", tokenizer.eos());
    object.boolean("add_bos_token", tokenizer.add_bos());
    object.integer("vocab_size", static_cast<std::uint64_t>(tokenizer.vocabulary_size()));
    object.integer("model_max_length", served.context_length);
    object.text("chat_template", served.chat_template.source());
    object.close();
    return json_reply(std::move(out));
}

void append_model(std::string& out, const ServedModel& served, std::string_view id) {
    JsonObject object(out);
    object.text("id", id);
    object.text("object", "model");
    object.integer("created", served.created_at);
    object.text("owned_by", "troupe");
    object.text("root", served.id);
    object.integer("max_model_len", served.context_length);
    object.text("system_fingerprint", served.system_fingerprint);
    object.json("meta", served.facts_json);
    object.close();
}

HttpReply list_models(const ServedModel& served) {
    std::string out;
    JsonObject object(out);
    object.text("object", "list");
    object.field("data") += '[';
    append_model(out, served, served.id);
    for (const std::string& alias : served.aliases) {
        if (alias == served.id) continue;
        out += ',';
        append_model(out, served, alias);
    }
    out += ']';
    object.close();
    return json_reply(std::move(out));
}

HttpReply get_model(const ServedModel& served, std::string_view id) {
    if (id.empty() || !served.answers_to(id))
        return error_reply({.status = 404,
                            .code = "model_not_found",
                            .message = fmt::format("The model \"{}\" is not served here; this "
                                                   "server has \"{}\".",
                                                   id.substr(0, 100), served.id),
                            .param = "model"});
    std::string out;
    append_model(out, served, id);
    return json_reply(std::move(out));
}

// Which of the three is meant by `route`.
HttpReply answer_text_route(const ServedModel& served, HttpRoute route, std::string_view body) {
    return with_body(served, body, [&](const JsonFields& fields) {
        switch (route) {
            case HttpRoute::tokenize:
                return tokenize(fields, served);
            case HttpRoute::detokenize:
                return detokenize(fields, served);
            default:
                return apply_template(fields, served);
        }
    });
}

// A reply that a helper thread makes.
class LaterCall final : public HttpCall, private actors::SessionHandler {
 public:
    LaterCall(const HttpCallContext& context, std::function<HttpReply()> make_reply)
        : hub_(context.hub), session_(hub_.join(*this)) {
        auto made = std::make_shared<HttpReply>();
        hub_.offload(
            session_, [made, make_reply = std::move(make_reply)] { *made = make_reply(); },
            [this, made, &output_ready = context.output_ready] {
                reply_ = std::move(*made);
                state_ = HttpExchange::Started::reply;
                output_ready();
            });
    }
    ~LaterCall() override { disconnect(); }

    [[nodiscard]] HttpExchange::Started state() const override { return state_; }
    [[nodiscard]] HttpReply take_reply() override { return std::move(reply_); }
    [[nodiscard]] bool next_chunk(std::string&) override { return false; }
    [[nodiscard]] bool finished() const override { return true; }
    [[nodiscard]] std::size_t pending_bytes() const override { return 0; }
    void disconnect() override { hub_.leave(session_); }

 private:
    void on_event(const actors::SessionEvent&, const actors::Delivery&) override {}
    void on_delivered() override {}
    void on_shutdown() override {}

    actors::SessionHub& hub_;
    const actors::SessionId session_;
    HttpExchange::Started state_ = HttpExchange::Started::undecided;
    HttpReply reply_;
};

}  // namespace

std::unique_ptr<HttpCall> make_maybe_later_call(const HttpCallContext& context, std::size_t bytes,
                                                std::function<HttpReply()> make_reply) {
    if (bytes <= context.served.limits.offload_bytes) return make_reply_call(make_reply());
    return std::make_unique<LaterCall>(context, std::move(make_reply));
}

std::unique_ptr<HttpCall> make_json_call(const HttpCallContext& context,
                                         const JsonRequest& request) {
    const ServedModel& served = context.served;
    switch (request.route) {
        case HttpRoute::tokenize:
        case HttpRoute::detokenize:
        case HttpRoute::apply_template:
            return make_maybe_later_call(
                context, request.body.size(),
                [&served, route = request.route, body = std::string(request.body)] {
                    return answer_text_route(served, route, body);
                });
        case HttpRoute::tokenizer_info:
            return make_reply_call(tokenizer_info(served));
        case HttpRoute::models:
            return make_reply_call(list_models(served));
        case HttpRoute::model_get:
            return make_reply_call(get_model(served, request.id));
        default:
            return make_stored_call(context, request);
    }
}

}  // namespace troupe::gateway
