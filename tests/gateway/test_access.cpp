#include <catch2/catch.hpp>

#include "gateway/access.hpp"
#include "gateway/admission.hpp"
#include "gateway/routes.hpp"

using namespace troupe;
using namespace troupe::gateway;

namespace {

ServerSettings settings_with(std::string_view keys) {
    ServerSettings settings;
    settings.keys = *KeyRing::parse(keys);
    return settings;
}

RequestFacts facts_from(std::string_view host, std::string_view origin = {}) {
    RequestFacts facts;
    facts.host = host;
    facts.origin = origin;
    facts.address = "127.0.0.1";
    return facts;
}

constexpr std::string_view kTwoKeys =
    "ada sk-ada-0123456789abcdef weight=2 admin\nbob sk-bob-0123456789abcdef\n";

}  // namespace

TEST_CASE("SHA-256 gives the published digest of \"abc\"", "[gateway][access]") {
    const Digest digest = sha256("abc");
    CHECK(digest[0] == 0xba);
    CHECK(digest[1] == 0x78);
    CHECK(digest[31] == 0xad);
}

TEST_CASE("a key file is read line by line, comments aside", "[gateway][access]") {
    const auto ring = KeyRing::parse(
        "# people\nada sk-ada-0123456789abcdef admin weight=2 rpm=60 tpm=9000 # boss\n\n"
        "bob sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb4"
        "10ff61f20015ad\n");
    REQUIRE(ring.has_value());
    const ApiKey* ada = ring->find("sk-ada-0123456789abcdef");
    REQUIRE(ada != nullptr);
    CHECK(ada->name == "ada");
    CHECK(ada->admin);
    CHECK(ada->weight == 2);
    CHECK(ada->principal().requests_per_minute == 60);
    CHECK(ada->principal().tokens_per_minute == 9000);
    CHECK(ring->find(ada->digest) == ada);
    CHECK(ring->find(sha256("sk-eve-0123456789abcdef")) == nullptr);
    REQUIRE(ring->find("abc") != nullptr);
    CHECK(ring->find("abc")->name == "bob");
    CHECK(ring->find("sk-ada-0123456789abcdeg") == nullptr);
    CHECK(ring->find("") == nullptr);
}

TEST_CASE("a short-lived key works on its owner's account until it expires", "[gateway][access]") {
    const ServerSettings settings = settings_with(kTwoKeys);
    const runtime::TimePoint start{};
    const auto at = [start](int seconds) { return start + std::chrono::seconds(seconds); };
    EphemeralKeys keys;
    const ApiKey* ada = settings.keys.find("sk-ada-0123456789abcdef");
    const auto made = keys.issue({ada->principal(), ada->digest}, at(0), std::chrono::seconds(60));
    REQUIRE(made);
    CHECK(made->starts_with("ek_"));
    CHECK_FALSE(client_of_key("ek_other", settings, keys, at(0)));
    const auto client = client_of_key(*made, settings, keys, at(59));
    REQUIRE(client);
    CHECK(client->principal == ada->principal());
    CHECK(client->ephemeral);
    CHECK_FALSE(client->admin);
    CHECK_FALSE(client_of_key(*made, settings, keys, at(60)));
    const auto without_ada = settings_with("bob sk-bob-0123456789abcdef\n");
    CHECK_FALSE(client_of_key(*made, without_ada, keys, at(1)));

    RequestFacts facts = facts_from("localhost");
    const std::string header = "Bearer " + *made;
    facts.authorization = header;
    const auto route = match_route("GET", "/v1/models");
    CHECK_FALSE(judge(facts, route, settings, keys, at(1)).refusal);
    CHECK(judge(facts, match_route("GET", "/slots"), settings, keys, at(1)).refusal->status == 403);
    CHECK(judge(facts, route, settings, keys, at(61)).refusal->status == 401);
}

TEST_CASE("a wrong key file names the line", "[gateway][access]") {
    const auto message = [](std::string_view text) {
        const auto ring = KeyRing::parse(text);
        return ring ? std::string("accepted") : ring.error().message;
    };
    CHECK(message("ada sk-ada-0123456789abcdef\nbob").starts_with("line 2"));
    for (const char* limit : {"rpm=0", "rpm=x", "tpm=-1", "tpm=99999999999", "rpm="})
        CHECK(message("ada sk-ada-0123456789abcdef " + std::string(limit)).starts_with("line 1"));
    CHECK(message("ada short").find("shorter than 16") != std::string::npos);
    CHECK(message("ada sha256:12").find("64 hex digits") != std::string::npos);
    CHECK(message("ada sk-ada-0123456789abcdef weight=0").find("weight") != std::string::npos);
    CHECK(message("ada sk-ada-0123456789abcdef boss").find("boss") != std::string::npos);
    CHECK(message("a sk-ada-0123456789abcdef\na sk-ada-0123456789abcdef").find("twice") !=
          std::string::npos);
    CHECK(message("# nobody\n").find("no key") != std::string::npos);
}

TEST_CASE("only addresses and known names may be addressed", "[gateway][access]") {
    const AllowLists lists{{"chat.example.org"}, {}};
    for (const auto* host : {"localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "[::1]",
                             "192.168.1.4", "chat.example.org:443", "CHAT.example.org"})
        CHECK(host_allowed(host, lists));
    for (const auto* host : {"", "evil.example", "evil.example:8080", "localhost.evil.example",
                             "127.0.0.1.evil.example", "[::1", ":8080"})
        CHECK_FALSE(host_allowed(host, lists));
}

TEST_CASE("a page may talk to the server it came from", "[gateway][access]") {
    const AllowLists lists{{}, {"https://chat.example.org"}};
    CHECK(origin_allowed("http://127.0.0.1:8080", "127.0.0.1:8080", lists));
    CHECK(origin_allowed("https://localhost:8080", "localhost:8080", lists));
    CHECK(origin_allowed("https://chat.example.org", "127.0.0.1:8080", lists));
    CHECK_FALSE(origin_allowed("http://127.0.0.1:9090", "127.0.0.1:8080", lists));
    CHECK_FALSE(origin_allowed("http://evil.example", "127.0.0.1:8080", lists));
    CHECK_FALSE(origin_allowed("null", "127.0.0.1:8080", lists));
}

TEST_CASE("credentials are read from headers and subprotocols", "[gateway][access]") {
    CHECK(bearer_token("Bearer  abc ") == "abc");
    CHECK(bearer_token("bearer abc") == "abc");
    CHECK_FALSE(bearer_token("Basic abc"));
    CHECK(subprotocol_token("realtime, openai-insecure-api-key.abc") == "abc");
    CHECK_FALSE(subprotocol_token("realtime"));
    CHECK(chosen_subprotocol("realtime, openai-insecure-api-key.abc") == "realtime");
    CHECK(chosen_subprotocol("realtime,troupe.v1") == "troupe.v1");
    CHECK(chosen_subprotocol("openai-insecure-api-key.abc").empty());
    CHECK(cookie_value("a=1; troupe_client=xyz; b=2", "troupe_client") == "xyz");
    CHECK_FALSE(cookie_value("not_troupe_client=xyz", "troupe_client"));
}

TEST_CASE("without keys everybody is let in, told apart by cookie or address",
          "[gateway][admission]") {
    const ServerSettings settings;
    const auto route = match_route("GET", "/v1/models");
    auto facts = facts_from("localhost:8080");
    const auto plain = judge(facts, route, settings);
    CHECK_FALSE(plain.refusal);
    CHECK(plain.client.admin);
    CHECK_FALSE(plain.client.keyed);
    facts.cookie = "troupe_client=0123456789abcdef0123456789abcdef";
    const auto browser = judge(facts, route, settings);
    CHECK(browser.client.keyed);
    CHECK(browser.client.principal.id != plain.client.principal.id);
    CHECK(judge(facts, route, settings).client.principal.id == browser.client.principal.id);
}

TEST_CASE("with keys every route but the page and /health wants one", "[gateway][admission]") {
    const auto settings = settings_with(kTwoKeys);
    for (const auto* path : {"/", "/assets/app.js", "/health"})
        CHECK_FALSE(judge(facts_from("localhost"), match_route("GET", path), settings).refusal);
    for (const auto* path : {"/ready", "/metrics", "/v1/models", "/props", "/nowhere"}) {
        const auto judged = judge(facts_from("localhost"), match_route("GET", path), settings);
        REQUIRE(judged.refusal);
        CHECK(judged.refusal->status == 401);
    }
}

TEST_CASE("a preflight shows no key and needs none, but its Origin must be allowed",
          "[gateway][admission]") {
    auto settings = settings_with(kTwoKeys);
    settings.allow.origins = {"https://chat.example.org"};
    auto facts = facts_from("localhost", "https://chat.example.org");
    facts.preflight = true;
    CHECK_FALSE(judge(facts, match_route("OPTIONS", "/v1/responses"), settings).refusal);
    facts.origin = "https://evil.example.org";
    CHECK(judge(facts, match_route("OPTIONS", "/v1/responses"), settings).refusal->status == 403);
}

TEST_CASE("a key opens its routes, and admin routes if it is marked so", "[gateway][admission]") {
    const auto settings = settings_with(kTwoKeys);
    auto facts = facts_from("localhost");
    facts.authorization = "Bearer sk-bob-0123456789abcdef";
    CHECK_FALSE(judge(facts, match_route("GET", "/v1/models"), settings).refusal);
    for (const char* path : {"/slots", "/props", "/debug/trace"})
        CHECK(judge(facts, match_route("GET", path), settings).refusal->status == 403);
    facts.authorization = "Bearer sk-ada-0123456789abcdef";
    const auto ada = judge(facts, match_route("GET", "/slots"), settings);
    CHECK_FALSE(ada.refusal);
    CHECK(ada.client.principal.weight == 2);
}

TEST_CASE("a WebSocket may authenticate by its first message, a browser is told why not",
          "[gateway][admission]") {
    const auto settings = settings_with(kTwoKeys);
    const auto route = match_route("GET", "/v1/responses");
    auto facts = facts_from("localhost");
    const auto later = judge(facts, route, settings);
    CHECK_FALSE(later.refusal);
    CHECK_FALSE(later.client.authenticated);
    facts.subprotocols = "troupe.v1, openai-insecure-api-key.wrong";
    const auto browser = judge(facts, route, settings);
    REQUIRE(browser.refusal);
    CHECK(browser.explain_over_socket);
    facts.subprotocols = {};
    facts.authorization = "Bearer wrong";
    CHECK_FALSE(judge(facts, route, settings).explain_over_socket);
}

TEST_CASE("a foreign Host or Origin is refused before anything else", "[gateway][admission]") {
    const ServerSettings settings;
    const auto page = match_route("GET", "/");
    CHECK(judge(facts_from("evil.example"), page, settings).refusal->status == 403);
    CHECK(judge(facts_from("localhost:1", "http://evil.example"), page, settings).refusal->status ==
          403);
    CHECK_FALSE(judge(facts_from("localhost:1", "http://localhost:1"), page, settings).refusal);
}

TEST_CASE("routes are found by method and path", "[gateway][routes]") {
    CHECK(match_route("POST", "/v1/chat/completions").exchange == HttpRoute::chat_completions);
    CHECK(match_route("GET", "/v1/responses").page == Page::responses_socket);
    CHECK(match_route("POST", "/v1/responses").exchange == HttpRoute::responses);
    CHECK(match_route("HEAD", "/").page == Page::asset);
    const auto got = match_route("GET", "/v1/responses/resp_1%20a");
    CHECK(got.exchange == HttpRoute::response_get);
    CHECK(got.id == "resp_1 a");
    CHECK(match_route("POST", "/v1/responses/r1/cancel").id == "r1");
    CHECK(match_route("POST", "/v1/responses/input_tokens").exchange ==
          HttpRoute::response_input_tokens);
}

TEST_CASE("a wrong method names the right ones, a wrong path none", "[gateway][routes]") {
    const auto get = match_route("GET", "/v1/chat/completions");
    CHECK_FALSE(get.method_known);
    CHECK(get.allow == "POST, OPTIONS");
    CHECK(match_route("PUT", "/v1/responses").allow == "GET, HEAD, POST, OPTIONS");
    CHECK(match_route("POST", "/v1/responses/r1").allow == "GET, HEAD, DELETE, OPTIONS");
    for (const auto* path : {"/v1", "/v1/models/", "/v1/responses/a/b", "/assetsx", ""})
        CHECK(match_route("GET", path).allow.empty());
}

TEST_CASE("a key may be for some models only", "[gateway][access]") {
    const auto ring = KeyRing::parse(
        "ada sk-ada-0123456789abcdef models=llama,tiny admin\nbob sk-bob-0123456789abcdef\n");
    REQUIRE(ring.has_value());
    CHECK(ring->find("sk-ada-0123456789abcdef")->models ==
          std::vector<std::string>{"llama", "tiny"});
    CHECK(ring->find("sk-bob-0123456789abcdef")->models.empty());
    for (const char* none : {"models=", "models=,", "models"}) {
        const auto refused =
            KeyRing::parse(std::string("ada sk-ada-0123456789abcdef ") + none + "\n");
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().message == "line 1: models wants names, with commas between them");
    }
}

TEST_CASE("only routes that ask something of the model are for its keys", "[gateway][access]") {
    for (const char* path : {"/v1/chat/completions", "/v1/responses", "/tokenize"})
        CHECK(uses_model(match_route("POST", path)));
    CHECK(uses_model(match_route("GET", "/v1/models")));
    CHECK(uses_model(match_route("GET", "/v1/responses")));
    CHECK_FALSE(uses_model(match_route("GET", "/v1/responses/resp_1")));
    CHECK_FALSE(uses_model(match_route("DELETE", "/v1/responses/resp_1")));
    CHECK_FALSE(uses_model(match_route("GET", "/metrics")));
}

TEST_CASE("a proxy is believed as far as it is trusted", "[gateway][access]") {
    const std::vector<std::string> proxies{"127.0.0.1", "10.0.0.7", "::1"};
    const auto told = [&](std::string_view peer, std::string_view forwarded) {
        return client_address(peer, forwarded, proxies);
    };
    CHECK(told("127.0.0.1", "192.0.2.5") == "192.0.2.5");
    CHECK(told("127.0.0.1", "203.0.113.9, 192.0.2.5") == "192.0.2.5");  // the first is hearsay
    CHECK(told("127.0.0.1", "203.0.113.9 , 192.0.2.5,10.0.0.7") == "192.0.2.5");
    CHECK(told("::1", "2001:DB8::1") == "2001:db8::1");
    CHECK(told("198.51.100.1", "192.0.2.5") == "198.51.100.1");  // a stranger says so
    CHECK(told("127.0.0.1", "") == "127.0.0.1");
    CHECK(told("127.0.0.1", "unknown") == "127.0.0.1");
    CHECK(told("127.0.0.1", "192.0.2.5, nonsense") == "127.0.0.1");
    CHECK(told("127.0.0.1", ",") == "127.0.0.1");
    CHECK(client_address("127.0.0.1", "192.0.2.5", {}) == "127.0.0.1");
}
