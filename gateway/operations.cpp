#include "gateway/operations.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gateway/admission.hpp"
#include "gateway/json_writer.hpp"

namespace troupe::gateway {
namespace {

namespace json = boost::json;

HttpReply json_reply(const json::value& body, unsigned status = 200) {
    HttpReply reply;
    reply.status = status;
    reply.body = json::serialize(body);
    return reply;
}

HttpReply unavailable(std::string body) {
    HttpReply reply;
    reply.status = 503;
    reply.body = std::move(body);
    reply.headers.emplace_back("Retry-After", "1");
    return reply;
}

HttpReply ready(const ServerContext& context) {
    if (context.draining)
        return unavailable(R"({"status":"unavailable","reason":"the server is shutting down"})");
    if (context.serving == nullptr) return unavailable(loading_json(context.loading));
    return json_reply({{"status", "ready"}, {"model", context.serving->model.id}});
}

json::object limits(const ServerContext& context) {
    const ServerSettings& s = context.settings;
    json::object out{
        {"header_bytes", s.header_bytes_max},
        {"target_bytes", s.target_bytes_max},
        {"connections", s.connections_max},
        {"sockets_per_client", s.sockets_per_client_max},
        {"sockets_per_address", s.sockets_per_address_max},
        {"messages_per_minute", s.messages_per_minute},
        {"messages_burst", s.messages_burst},
        {"pending_bytes", s.pending_bytes_max},
        {"connection_life_s", s.life_max.count()},
        {"idle_s", s.idle_timeout.count()},
        {"heartbeat_s", s.heartbeat.count()},
    };
    if (context.serving != nullptr) {
        const WireLimits& wire = context.serving->model.limits;
        const actors::SessionLimits& session = context.serving->model.session_limits;
        out["message_bytes"] = wire.message_bytes_max;
        out["body_bytes"] = wire.body_bytes_max;
        out["json_depth"] = wire.depth_max;
        out["answers"] = wire.answers_max;
        out["responses_in_flight"] = session.in_flight_max;
        out["named_lanes"] = session.named_lanes_max;
        out["queued_creates"] = session.queued_max;
    }
    return out;
}

HttpReply props(const ServerContext& context) {
    json::object out{{"version", context.settings.version}, {"limits", limits(context)}};
    if (context.serving != nullptr) {
        out["model"] = context.serving->model.id;
        out["max_model_len"] = context.serving->model.context_length;
        out["system_fingerprint"] = context.serving->model.system_fingerprint;
        out["total_slots"] = context.serving->stats.slots.size();
    }
    return json_reply(out);
}

HttpReply slots(const ServerContext& context) {
    if (context.serving == nullptr) return ready(context);
    const actors::EngineStats& stats = context.serving->stats;
    json::array out;
    for (std::size_t i = 0; i < stats.slots.size(); ++i) {
        const actors::SlotStats& slot = stats.slots[i];
        const auto request = slot.request.get();
        if (request == 0) continue;
        out.push_back({{"id", i},
                       {"request", request},
                       {"prompt_tokens", slot.prompt_tokens.get()},
                       {"prompt_done", slot.prompt_done.get()},
                       {"generated_tokens", slot.generated_tokens.get()}});
    }
    return json_reply({{"slots", std::move(out)},
                       {"running", stats.requests_running.get()},
                       {"waiting", stats.requests_waiting.get()}});
}

// What each key's requests hold in slots: prompts as far as they are computed, and answers.
std::vector<MetricsSources::KeyTokens> tokens_of_keys(const ServerContext& context) {
    std::unordered_map<std::uint64_t, std::uint64_t> tokens_of;
    for (const actors::SlotStats& slot : context.serving->stats.slots) {
        const auto* principal = context.serving->hub.principal_of(slot.request.get());
        if (principal != nullptr)
            tokens_of[principal->id] += slot.prompt_done.get() + slot.generated_tokens.get();
    }
    std::vector<MetricsSources::KeyTokens> all;
    for (const ApiKey& key : context.settings.keys.all())
        all.push_back({key.name, tokens_of[key.principal().id]});
    return all;
}

// Who is served how much is no other key's business.
HttpReply metrics(const Client& client, const ServerContext& context) {
    MetricsSources sources;
    context.connections.for_each(
        [&](const Connection& c) { sources.unread_bytes += c.unread_bytes(); });
    if (context.serving != nullptr) {
        sources.engine = &context.serving->stats;
        sources.resumes = context.serving->hub.live().joined();
        if (client.admin) sources.tokens_of_keys = tokens_of_keys(context);
    }
    HttpReply reply;
    reply.body = context.metrics.text(sources);
    reply.content_type = "text/plain; version=0.0.4; charset=utf-8";
    return reply;
}

HttpReply refusal(unsigned status, std::string_view code, std::string_view message) {
    HttpReply reply;
    reply.status = status;
    reply.body = error_body(status, code, message);
    return reply;
}

}  // namespace

std::string loading_json(const model::LoadProgress& loading) {
    std::string out;
    JsonObject body(out);
    body.text("status", "loading");
    body.text("reason", "the model is loading");
    append_json_number(body.field("loaded"), std::floor(loading.loaded() * 100) / 100);
    body.close();
    return out;
}

HttpReply client_secret_reply(std::string_view body, const Client& client, ServerContext& context) {
    if (!client.key)
        return refusal(400, "invalid_request", "this server has no keys, so it needs none");
    if (client.ephemeral)
        return refusal(403, "forbidden", "a short-lived key cannot make another one");
    boost::system::error_code error;
    const json::value parsed = json::parse(body.empty() ? "{}" : body, error);
    if (error) return refusal(400, "invalid_json", "the body is no JSON");
    std::int64_t seconds = 600;
    if (const auto* asked =
            parsed.is_object() ? parsed.as_object().if_contains("expires_after") : nullptr;
        asked != nullptr && asked->is_object() && asked->as_object().contains("seconds")) {
        seconds = asked->at("seconds").to_number<std::int64_t>(error);
    }
    if (error || seconds < 10 || seconds > 7200)
        return refusal(400, "invalid_parameter",
                       "expires_after.seconds must be an integer between 10 and 7200");
    const auto key = context.ephemeral_keys.issue(
        {client.principal, *client.key}, context.clock.now(), std::chrono::seconds(seconds));
    if (!key) return refusal(429, "rate_limit_exceeded", "there are too many short-lived keys");
    return json_reply({{"value", *key},
                       {"expires_at", actors::system_unix_seconds() + seconds},
                       {"session",
                        {{"type", "realtime"},
                         {"object", "realtime.session"},
                         {"id", "sess_" + random_hex(12)}}}});
}

HttpReply operations_reply(Page page, const Client& client, ServerContext& context) {
    switch (page) {
        case Page::health:
            return json_reply({{"status", "ok"}});
        case Page::ready:
            return ready(context);
        case Page::version:
            return json_reply({{"version", context.settings.version}});
        case Page::props:
            return props(context);
        case Page::slots:
            return slots(context);
        case Page::trace:  // while there is nothing to trace
            return ready(context);
        case Page::metrics:
            return metrics(client, context);
        default:
            break;
    }
    return refusal(404, "not_found", "there is no such route");
}

}  // namespace troupe::gateway
