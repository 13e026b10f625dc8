#include "gateway/admission.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

namespace troupe::gateway {
namespace {

constexpr std::string_view kTokenProtocol = "openai-insecure-api-key.";

// Calls `visit` with each comma-separated, trimmed element until it returns true.
template <class Visit>
void each_element(std::string_view list, Visit visit) {
    while (!list.empty()) {
        const auto end = std::min(list.find(','), list.size());
        auto element = list.substr(0, end);
        list.remove_prefix(std::min(end + 1, list.size()));
        while (element.starts_with(' ') || element.starts_with('\t'))
            element.remove_prefix(1);
        while (element.ends_with(' ') || element.ends_with('\t'))
            element.remove_suffix(1);
        if (visit(element)) return;
    }
}

Client client_by_place(const RequestFacts& facts) {
    Client client;
    if (const auto cookie = cookie_value(facts.cookie, kClientCookie);
        cookie && cookie->size() == 32) {
        client.principal.id = principal_id(fmt::format("cookie:{}", *cookie));
        client.keyed = true;
    } else {
        client.principal.id = principal_id(fmt::format("address:{}", facts.address));
    }
    return client;
}

Judgement refused(unsigned status, std::string_view code, std::string message) {
    Judgement judgement;
    judgement.refusal = Refusal{status, std::string(code), std::move(message)};
    return judgement;
}

Judgement judge_key(const RequestFacts& facts, const RouteMatch& route,
                    const ServerSettings& settings, const EphemeralKeys& ephemeral_keys,
                    runtime::TimePoint now) {
    auto shown = bearer_token(facts.authorization);
    const bool socket = route.page == Page::responses_socket;
    if (!shown && socket) shown = subprotocol_token(facts.subprotocols);
    Judgement judgement;
    judgement.client = client_by_place(facts);
    if (!shown) {
        if (socket) {  // its first message may still authenticate
            judgement.client.authenticated = false;
            return judgement;
        }
        return refused(401, "invalid_api_key",
                       "this server wants an API key: send \"Authorization: Bearer KEY\"");
    }
    const auto client = client_of_key(*shown, settings, ephemeral_keys, now);
    if (!client) {
        judgement = refused(401, "invalid_api_key", "the API key is not one of this server's");
        judgement.explain_over_socket =
            socket && (!facts.origin.empty() || subprotocol_token(facts.subprotocols));
        return judgement;
    }
    judgement.client = *client;
    if (is_admin(route) && !client->admin)
        return refused(403, "forbidden", "this route is for keys marked admin");
    return judgement;
}

std::string_view error_type(unsigned status) {
    if (status == 401) return "authentication_error";
    if (status == 403) return "permission_error";
    if (status == 404) return "not_found_error";
    if (status == 429) return "rate_limit_error";
    return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

std::optional<Client> client_of_key(std::string_view shown, const ServerSettings& settings,
                                    const EphemeralKeys& ephemeral_keys, runtime::TimePoint now) {
    Client client;
    client.keyed = true;
    if (const ApiKey* key = settings.keys.find(shown)) {
        client.principal = key->principal();
        client.key = key->digest;
        client.admin = key->admin;
        return client;
    }
    const EphemeralKeys::Owner* owner = ephemeral_keys.find(shown, now);
    if (owner == nullptr || settings.keys.find(owner->key) == nullptr) return std::nullopt;
    client.principal = owner->principal;
    client.key = owner->key;
    client.ephemeral = true;
    return client;
}

std::optional<Refusal> judge_model(const Client& client, const ServerSettings& settings,
                                   const ServedModel& served) {
    const ApiKey* key = client.key ? settings.keys.find(*client.key) : nullptr;
    if (key == nullptr || key->models.empty()) return std::nullopt;
    const auto named = [&](const std::string& name) {
        return std::find(key->models.begin(), key->models.end(), name) != key->models.end();
    };
    if (named(served.id) || std::any_of(served.aliases.begin(), served.aliases.end(), named))
        return std::nullopt;
    return Refusal{403, "forbidden",
                   fmt::format("the key \"{}\" may not use the model \"{}\": who runs this server "
                               "can add it to models= of the key in the file of keys",
                               key->name, served.id)};
}

Judgement judge(const RequestFacts& facts, const RouteMatch& route, const ServerSettings& settings,
                const EphemeralKeys& ephemeral_keys, runtime::TimePoint now) {
    if (!host_allowed(facts.host, settings.allow))
        return refused(
            403, "forbidden",
            "the Host header names no address of this server; start it with --allow-host "
            "NAME to serve that name");
    if (!facts.origin.empty() && !origin_allowed(facts.origin, facts.host, settings.allow))
        return refused(403, "forbidden",
                       "pages of this Origin may not use this server; start it with --allow-origin "
                       "ORIGIN to let them");
    if (!settings.keys.empty() && !is_public(route) && !facts.preflight)
        return judge_key(facts, route, settings, ephemeral_keys, now);
    Judgement judgement;
    judgement.client = client_by_place(facts);
    judgement.client.admin = settings.keys.empty();
    return judgement;
}

std::string_view chosen_subprotocol(std::string_view offered) {
    std::string_view chosen;
    each_element(offered, [&](std::string_view name) {
        if (name == "troupe.v1") chosen = "troupe.v1";
        if (name == "realtime" && chosen.empty()) chosen = "realtime";
        return chosen == "troupe.v1";
    });
    return chosen;
}

std::optional<std::string_view> subprotocol_token(std::string_view offered) {
    std::optional<std::string_view> token;
    each_element(offered, [&](std::string_view name) {
        if (name.starts_with(kTokenProtocol)) token = name.substr(kTokenProtocol.size());
        return token.has_value();
    });
    return token;
}

std::string error_body(unsigned status, std::string_view code, std::string_view message) {
    const boost::json::value body = {
        {"error",
         {{"message", message}, {"type", error_type(status)}, {"param", nullptr}, {"code", code}}}};
    return boost::json::serialize(body);
}

}  // namespace troupe::gateway
