#include "gateway/wire_errors.hpp"

#include "gateway/json_writer.hpp"

namespace troupe::gateway {
namespace {

void append_param(JsonObject& object, const actors::RequestError& error) {
    if (error.param.empty()) {
        object.null("param");
    } else {
        object.text("param", error.param);
    }
}

}  // namespace

std::string_view error_type(unsigned status) {
    if (status >= 500) return "server_error";
    switch (status) {
        case 401:
            return "authentication_error";
        case 403:
            return "permission_error";
        case 429:
            return "rate_limit_error";
        default:
            return "invalid_request_error";
    }
}

void append_error_object(std::string& out, const actors::RequestError& error) {
    JsonObject object(out);
    object.text("message", error.message);
    object.text("type", error_type(error.status));
    append_param(object, error);
    object.text("code", error.code);
    object.close();
}

std::string error_body(const actors::RequestError& error) {
    std::string body;
    JsonObject object(body);
    append_error_object(object.field("error"), error);
    object.close();
    return body;
}

void append_error_event(std::string& out, const actors::RequestError& error,
                        std::string_view event_id, const std::optional<std::string>& stream_id,
                        std::uint64_t sequence_number) {
    JsonObject event(out);
    event.text("type", "error");
    event.integer("sequence_number", sequence_number);
    if (stream_id) event.text("stream_id", *stream_id);
    event.integer("status", error.status);
    event.text("code", error.code);
    event.text("message", error.message);
    append_param(event, error);
    JsonObject inner(event.field("error"));
    inner.text("type", error_type(error.status));
    inner.text("code", error.code);
    inner.text("message", error.message);
    append_param(inner, error);
    if (!event_id.empty()) inner.text("event_id", event_id);
    if (error.retry_after_ms > 0) {
        JsonObject headers(inner.field("headers"));
        headers.text("Retry-After", retry_after_seconds(error));
        headers.close();
    }
    inner.close();
    event.close();
}

std::string retry_after_seconds(const actors::RequestError& error) {
    if (error.retry_after_ms <= 0) return {};
    return std::to_string((error.retry_after_ms + 999) / 1000);
}

}  // namespace troupe::gateway
