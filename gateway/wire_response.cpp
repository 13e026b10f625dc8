#include "gateway/wire_response.hpp"

#include "gateway/json_writer.hpp"
#include "gateway/wire_errors.hpp"
#include "gateway/wire_scores.hpp"

namespace troupe::gateway {
namespace {

using namespace actors;  // NOLINT: this file is all about their events

std::string_view to_string(ResponseStatus status) {
    switch (status) {
        case ResponseStatus::queued:
            return "queued";
        case ResponseStatus::in_progress:
            return "in_progress";
        case ResponseStatus::completed:
            return "completed";
        case ResponseStatus::incomplete:
            return "incomplete";
        case ResponseStatus::failed:
            return "failed";
        case ResponseStatus::cancelled:
            return "cancelled";
    }
    return "failed";
}

// Of the message in a response of that status.
std::string_view item_status(ResponseStatus status) {
    if (status == ResponseStatus::completed) return "completed";
    return status == ResponseStatus::in_progress ? "in_progress" : "incomplete";
}

void append_part(std::string& out, std::string_view text, std::span<const TokenScore> scores,
                 const ServedModel& served) {
    JsonObject part(out);
    part.text("type", "output_text");
    part.text("text", text);
    part.json("annotations", "[]");
    append_scores(part.field("logprobs"), scores, served.tokenizer);
    part.close();
}

// Without the content, whose array stays open: the caller goes on.
void open_item(std::string& out, std::string_view item_id, std::string_view status) {
    JsonObject item(out);
    item.text("id", item_id);
    item.text("type", "message");
    item.text("status", status);
    item.text("role", "assistant");
    item.field("content") += '[';
}

void append_item(std::string& out, std::string_view item_id, std::string_view status,
                 std::string_view text, std::span<const TokenScore> scores,
                 const ServedModel& served) {
    open_item(out, item_id, status);
    append_part(out, text, scores, served);
    out += "]}";
}

// Zero-filled rather than null while nothing is known: public validators want an object.
void append_usage(std::string& out, const Usage& usage) {
    JsonObject object(out);
    object.integer("input_tokens", usage.prompt_tokens);
    JsonObject input(object.field("input_tokens_details"));
    input.integer("cached_tokens", usage.cached_tokens);
    input.integer("cache_write_tokens", 0U);
    input.close();
    object.integer("output_tokens", usage.generated_tokens);
    object.json("output_tokens_details", R"({"reasoning_tokens":0})");
    object.integer("total_tokens", std::uint64_t{usage.prompt_tokens} + usage.generated_tokens);
    object.close();
}

void append_outcome(JsonObject& object, const Response& response) {
    if (response.status == ResponseStatus::incomplete) {
        JsonObject details(object.field("incomplete_details"));
        details.text("reason", response.finish_reason == FinishReason::deadline
                                   ? "deadline"
                                   : "max_output_tokens");
        details.close();
    } else {
        object.null("incomplete_details");
    }
    if (response.error) {
        JsonObject error(object.field("error"));
        error.text("code", response.error->code);
        error.text("message", response.error->message);
        error.close();
    } else {
        object.null("error");
    }
}

void append_settings(JsonObject& object, const ResponseSettings& settings) {
    const model::DecodingParams& params = settings.params;
    const EchoedFields& echoed = settings.echoed;
    object.json("tools", echoed.tools);
    object.json("tool_choice", echoed.tool_choice);
    object.text("truncation", settings.drop_old_turns ? "auto" : "disabled");
    object.json("parallel_tool_calls", echoed.parallel_tool_calls);
    object.json("text", echoed.text);
    object.number("top_p", params.top_p);
    object.number("temperature", params.temperature);
    object.number("presence_penalty", params.presence_penalty);
    object.number("frequency_penalty", params.frequency_penalty);
    object.integer("top_logprobs", params.top_logprobs);
    object.json("reasoning", echoed.reasoning);
    if (params.max_tokens < 0) {
        object.null("max_output_tokens");
    } else {
        object.integer("max_output_tokens", params.max_tokens);
    }
    object.json("max_tool_calls", echoed.max_tool_calls);
    object.boolean("store", settings.store);
    object.boolean("background", settings.background);
    object.json("service_tier", echoed.service_tier);
    object.json("metadata", echoed.metadata);
    object.json("safety_identifier", echoed.safety_identifier);
    object.json("prompt_cache_key", echoed.prompt_cache_key);
}

std::string_view changed_type(ResponseChanged::Kind kind) {
    switch (kind) {
        case ResponseChanged::Kind::created:
            return "response.created";
        case ResponseChanged::Kind::queued:
            return "response.queued";
        case ResponseChanged::Kind::in_progress:
            return "response.in_progress";
        case ResponseChanged::Kind::completed:
            return "response.completed";
        case ResponseChanged::Kind::incomplete:
            return "response.incomplete";
        case ResponseChanged::Kind::failed:
            return "response.failed";
    }
    return "response.failed";
}

void place(JsonObject& object, std::string_view item_id) {
    object.text("item_id", item_id);
    object.fields(R"("output_index":0,"content_index":0)");
}

// What follows the fields that every event has, one overload an event.
struct BodyWriter {
    JsonObject& object;
    std::string& out;
    const ServedModel& served;

    void operator()(const ResponseChanged& changed) {
        append_response(object.field("response"), changed.response, served);
        if (changed.queue_position) {
            JsonObject troupe(object.field("troupe"));
            troupe.integer("queue_position", *changed.queue_position);
            troupe.close();
        } else if (changed.progress) {
            JsonObject troupe(object.field("troupe"));
            troupe.integer("prompt_done", changed.progress->prompt_done);
            troupe.integer("prompt_total", changed.progress->prompt_total);
            troupe.integer("cached", changed.progress->cached);
            troupe.close();
        }
    }
    void operator()(const StoredEnd& end) { object.json("response", end.response_json); }
    void operator()(const ItemAdded& added) {
        object.integer("output_index", 0);
        open_item(object.field("item"), added.item_id, "in_progress");
        out += "]}";
    }
    void operator()(const PartAdded& added) {
        place(object, added.item_id);
        append_part(object.field("part"), {}, {}, served);
    }
    void operator()(const TextDone& done) {
        place(object, done.item_id);
        object.text("text", done.text);
        append_scores(object.field("logprobs"), done.scores, served.tokenizer);
    }
    void operator()(const PartDone& done) {
        place(object, done.item_id);
        append_part(object.field("part"), done.text, done.scores, served);
    }
    void operator()(const ItemDone& done) {
        object.integer("output_index", 0);
        append_item(object.field("item"), done.item_id, done.completed ? "completed" : "incomplete",
                    done.text, done.scores, served);
    }
    void operator()(const Pong& pong) { object.json("t", pong.t_json); }
    void operator()(const SteerFailed& failed) {
        if (failed.response_id.empty()) {
            object.null("response_id");
        } else {
            object.text("response_id", failed.response_id);
        }
        append_error_object(object.field("error"),
                            {.status = 400,
                             .code = "unsupported_event",
                             .message = "This server cannot steer a response.",
                             .param = {}});
        if (!failed.event_id.empty()) object.text("event_id", failed.event_id);
    }
    void operator()(const TextDelta&) {}  // these have writers of their own
    void operator()(const ErrorEvent&) {}
};

// There is one for every token: in as few pieces as it has.
void append_delta(std::string& out, const ServerEvent& event, const TextDelta& delta,
                  const ServedModel& served) {
    out += R"({"type":"response.output_text.delta","sequence_number":)";
    append_json_unsigned(out, event.sequence_number);
    if (event.stream_id) {
        out += R"(,"stream_id":)";
        append_json_string(out, *event.stream_id);
    }
    out += R"(,"item_id":)";
    append_json_string(out, delta.item_id);
    out += R"(,"output_index":0,"content_index":0,"delta":)";
    append_json_string(out, delta.delta);
    out += R"(,"logprobs":)";
    append_scores(out, delta.scores, served.tokenizer);
    out += '}';
}

}  // namespace

std::string_view event_type(const ServerEvent& event) {
    struct Name {
        std::string_view operator()(const ResponseChanged& c) { return changed_type(c.kind); }
        std::string_view operator()(const StoredEnd& e) {
            return e.completed ? "response.completed" : "response.incomplete";
        }
        std::string_view operator()(const ItemAdded&) { return "response.output_item.added"; }
        std::string_view operator()(const PartAdded&) { return "response.content_part.added"; }
        std::string_view operator()(const TextDelta&) { return "response.output_text.delta"; }
        std::string_view operator()(const TextDone&) { return "response.output_text.done"; }
        std::string_view operator()(const PartDone&) { return "response.content_part.done"; }
        std::string_view operator()(const ItemDone&) { return "response.output_item.done"; }
        std::string_view operator()(const ErrorEvent&) { return "error"; }
        std::string_view operator()(const Pong&) { return "troupe:pong"; }
        std::string_view operator()(const SteerFailed&) { return "response.steer.failed"; }
    };
    return std::visit(Name{}, event.body);
}

void append_event(std::string& out, const ServerEvent& event, const ServedModel& served) {
    if (const auto* delta = std::get_if<TextDelta>(&event.body))
        return append_delta(out, event, *delta, served);
    if (const auto* error = std::get_if<ErrorEvent>(&event.body))
        return append_error_event(out, error->error, error->event_id, event.stream_id,
                                  event.sequence_number);
    JsonObject object(out);
    object.text("type", event_type(event));
    object.integer("sequence_number", event.sequence_number);
    if (event.stream_id) object.text("stream_id", *event.stream_id);
    std::visit(BodyWriter{object, out, served}, event.body);
    object.close();
}

void append_response(std::string& out, const Response& response, const ServedModel& served) {
    const ResponseSettings& settings = *response.settings;
    JsonObject object(out);
    object.text("id", response.id);
    object.text("object", "response");
    object.integer("created_at", response.created_at);
    if (response.completed_at == 0 || response.status != ResponseStatus::completed) {
        object.null("completed_at");
    } else {
        object.integer("completed_at", response.completed_at);
    }
    object.text("status", to_string(response.status));
    append_outcome(object, response);
    object.text("model", settings.echoed.model);
    if (settings.previous_response_id.empty()) {
        object.null("previous_response_id");
    } else {
        object.text("previous_response_id", settings.previous_response_id);
    }
    object.json("instructions", settings.echoed.instructions);
    object.field("output") += '[';
    if (response.has_output)
        append_item(out, response.item_id, item_status(response.status), response.text,
                    response.scores, served);
    out += ']';
    append_settings(object, settings);
    append_usage(object.field("usage"), response.usage);
    if (response.finish_reason) {
        AnswerFacts facts{*response.finish_reason, response.cause, response.usage,
                          response.timings};
        if (settings.drop_old_turns) facts.dropped_messages = response.dropped_messages;
        facts.system_in_user = response.system_in_user;
        append_facts(object.field("troupe"), facts, settings.params, served);
    }
    object.close();
}

}  // namespace troupe::gateway
