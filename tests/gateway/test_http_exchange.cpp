// HTTP requests that concern the model, with the test as socket and as scheduler.
#include "gateway/http_exchange.hpp"

#include <catch2/catch.hpp>

#include "tests/gateway/test_wire_support.hpp"

using namespace troupe;
using namespace troupe::gateway;
using troupe::test::HubFixture;
namespace json = boost::json;
using Started = HttpExchange::Started;

namespace {

struct Fixture : HubFixture {
    Started start(HttpRoute route, std::string_view body, std::string_view id = {},
                  std::uint64_t principal = 1) {
        exchange.reset();
        exchange.emplace(hub, served, test::client(principal), [this] { ++wakes; });
        const auto started = exchange->start(route, body, id);
        collect();
        return started;
    }
    // A reply's body; its status is checked.
    json::value reply(unsigned status = 200) {
        REQUIRE(exchange->state() == Started::reply);
        const HttpReply got = exchange->take_reply();
        CHECK(got.status == status);
        CHECK(got.content_type == "application/json");
        return json::parse(got.body);
    }
    std::string chunks() {
        std::string all;
        while (exchange->next_chunk(all)) {
        }
        collect();
        return all;
    }
    json::value ask(HttpRoute route, std::string_view body, std::string_view id = {},
                    unsigned status = 200) {
        CHECK(start(route, body, id) == Started::reply);
        return reply(status);
    }
    int wakes = 0;
    std::optional<HttpExchange> exchange;
};

// The JSON of each data line; [DONE] as a string.
std::vector<json::value> events_of(const std::string& sse) {
    std::vector<json::value> events;
    std::size_t begin = 0;
    while ((begin = sse.find("data: ", begin)) != std::string::npos) {
        begin += 6;
        const std::string line = sse.substr(begin, sse.find("\n\n", begin) - begin);
        events.push_back(line == "[DONE]" ? json::value("[DONE]") : json::parse(line));
    }
    return events;
}

const char* const kChat = R"({"messages":[{"role":"user","content":"hi"}],"seed":3)";

std::string chat(const std::string& more) {
    return kChat + more + "}";
}

}  // namespace

TEST_CASE("A chat completion as one object", "[gateway][http_exchange][chat]") {
    Fixture f;
    CHECK(f.start(HttpRoute::chat_completions, chat("")) == Started::undecided);
    REQUIRE(f.submits.size() == 1);
    CHECK(f.prompt(0) == "user=hi;");
    f.tokens(0, "Hello");
    CHECK(f.exchange->state() == Started::undecided);
    f.finish(0, actors::FinishReason::length);
    CHECK(f.wakes == 2);
    const auto body = f.reply();
    CHECK(body.at("object") == "chat.completion");
    CHECK(body.at("created").as_int64() == 1000);
    CHECK(body.at("model") == "tiny");
    CHECK(body.at("system_fingerprint") == "fp_1");
    const auto& choice = body.at("choices").at(0);
    CHECK(choice.at("message").at("content") == "Hello");
    CHECK(choice.at("message").at("role") == "assistant");
    CHECK(choice.at("finish_reason") == "length");
    CHECK(choice.at("logprobs").is_null());
    CHECK(choice.at("troupe").at("seed").as_int64() == 3);
    CHECK(json::serialize(body.at("usage")) ==
          R"({"prompt_tokens":8,"completion_tokens":5,"total_tokens":13,)"
          R"("prompt_tokens_details":{"cached_tokens":2},)"
          R"("completion_tokens_details":{"reasoning_tokens":0,"accepted_prediction_tokens":3,)"
          R"("rejected_prediction_tokens":1}})");
    CHECK(choice.at("troupe").at("draft_tokens").as_int64() == 4);
    CHECK(choice.at("troupe").at("accepted_tokens").as_int64() == 3);
}

TEST_CASE("A request may do without speculation", "[gateway][http_exchange][chat]") {
    Fixture f;
    CHECK(f.start(HttpRoute::chat_completions, chat(R"(,"speculation":false)")) ==
          Started::undecided);
    CHECK(!f.submits.at(0).params.speculation);
    Fixture g;
    CHECK(g.start(HttpRoute::chat_completions, chat("")) == Started::undecided);
    CHECK(g.submits.at(0).params.speculation);
}

TEST_CASE("A chat completion as a stream", "[gateway][http_exchange][chat]") {
    Fixture f;
    CHECK(f.start(HttpRoute::chat_completions,
                  chat(R"(,"stream":true,"stream_options":{"include_usage":true})")) ==
          Started::undecided);
    f.tokens(0, "He");
    REQUIRE(f.exchange->state() == Started::stream);
    const std::string first = f.chunks();
    CHECK(first.starts_with("data: {\"id\":\"chatcmpl-"));
    auto events = events_of(first);
    REQUIRE(events.size() == 2);
    CHECK(json::serialize(events[0].at("choices").at(0).at("delta")) ==
          R"({"role":"assistant","content":""})");
    CHECK(events[0].at("usage").is_null());
    CHECK(json::serialize(events[1].at("choices").at(0).at("delta")) == R"({"content":"He"})");
    f.tokens(0, "l");
    f.tokens(0, "lo");
    f.finish(0);
    events = events_of(f.chunks());
    REQUIRE(events.size() == 4);
    CHECK(events[0].at("choices").at(0).at("delta").at("content") == "llo");
    CHECK(json::serialize(events[1].at("choices").at(0).at("delta")) == "{}");
    CHECK(events[1].at("choices").at(0).at("finish_reason") == "stop");
    CHECK(events[2].at("choices").as_array().empty());
    CHECK(events[2].at("usage").at("completion_tokens").as_int64() == 5);
    CHECK(events[3] == "[DONE]");
    CHECK(f.exchange->finished());
}

TEST_CASE("Every chunk tells what its choice has cost so far, if asked",
          "[gateway][http_exchange][chat]") {
    Fixture f;
    const std::string options =
        R"(,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})";
    (void)f.start(HttpRoute::chat_completions, chat(options));
    const auto prompt_tokens = static_cast<std::int64_t>(f.submits.at(0).prompt.size());
    f.tokens(0, "He");
    const auto begin = events_of(f.chunks());
    f.tokens(0, "llo");
    f.finish(0);
    const auto end = events_of(f.chunks());
    REQUIRE(begin.size() == 2);
    REQUIRE(end.size() == 4);
    for (const auto& [chunk, tokens] :
         {std::pair(begin[0], 2), {begin[1], 2}, {end[0], 5}, {end[1], 5}, {end[2], 5}}) {
        const auto& usage = chunk.at("usage");
        CHECK(usage.at("prompt_tokens").as_int64() == prompt_tokens);
        CHECK(usage.at("completion_tokens").as_int64() == tokens);
        CHECK(usage.at("total_tokens").as_int64() == prompt_tokens + tokens);
    }
}

TEST_CASE("n answers share a seed and differ by index", "[gateway][http_exchange][chat]") {
    Fixture f;
    (void)f.start(HttpRoute::chat_completions, chat(R"(,"n":3)"));
    REQUIRE(f.submits.size() == 3);
    for (std::uint32_t i = 0; i < 3; ++i) {
        CHECK(f.submits[i].params.seed == 3);
        CHECK(f.submits[i].answer_index == i);
        f.tokens(i, std::string(1 + i, 'a'));
    }
    for (const std::size_t i : {2, 0, 1})
        f.finish(i);
    const auto body = f.reply();
    REQUIRE(body.at("choices").as_array().size() == 3);
    CHECK(body.at("choices").at(2).at("message").at("content") == "aaa");
    CHECK(body.at("choices").at(2).at("index").as_int64() == 2);
    CHECK(body.at("usage").at("prompt_tokens").as_int64() == 8);
    CHECK(body.at("usage").at("completion_tokens").as_int64() == 6);
}

TEST_CASE("Chat log-probabilities are in OpenAI's form", "[gateway][http_exchange][chat]") {
    Fixture f;
    (void)f.start(HttpRoute::chat_completions, chat(R"(,"logprobs":true,"top_logprobs":1)"));
    f.tokens(0, "A\xF0");
    f.finish(0);
    const auto body = f.reply();
    const auto& content = body.at("choices").at(0).at("logprobs").at("content").as_array();
    REQUIRE(content.size() == 2);
    CHECK(content[0].at("token") == "A");
    CHECK(json::serialize(content[0].at("bytes")) == "[65]");
    CHECK(content[0].at("top_logprobs").at(0).at("token") == "<|end|>");
    CHECK(content[1].at("token") == "bytes:\\xf0");
    CHECK(body.at("choices").at(0).at("message").at("content") == "A");
}

TEST_CASE("A refusal before anything is streamed is a plain reply",
          "[gateway][http_exchange][errors]") {
    Fixture f;
    (void)f.start(HttpRoute::chat_completions, chat(R"(,"n":2,"stream":true)"));
    f.reject(0, actors::Rejected::Reason::overloaded);
    f.collect();
    CHECK(f.cancels.size() == 1);
    REQUIRE(f.exchange->state() == Started::reply);
    const HttpReply reply = f.exchange->take_reply();
    CHECK(reply.status == 429);
    CHECK(reply.headers == std::vector<std::pair<std::string, std::string>>{{"Retry-After", "2"}});
    CHECK(reply.body == R"({"error":{"message":"no","type":"rate_limit_error","param":null,)"
                        R"("code":"rate_limit_exceeded"}})");
}

TEST_CASE("A failure in mid-stream is told in the stream", "[gateway][http_exchange][errors]") {
    Fixture f;
    (void)f.start(HttpRoute::chat_completions, chat(R"(,"stream":true)"));
    f.tokens(0, "A");
    (void)f.chunks();
    f.finish(0, actors::FinishReason::error);
    const auto events = events_of(f.chunks());
    REQUIRE(events.size() == 2);
    CHECK(events[0].at("error").at("code") == "server_error");
    CHECK(events[1] == "[DONE]");
    CHECK(f.exchange->finished());
}

TEST_CASE("Bad bodies are 400 with four keys", "[gateway][http_exchange][errors]") {
    Fixture f;
    for (const char* body : {"", "{}", "[]", "{\"messages\":", R"({"messages":[]})"}) {
        INFO(body);
        const auto error = f.ask(HttpRoute::chat_completions, body, {}, 400).at("error");
        CHECK(error.as_object().size() == 4);
    }
    (void)f.ask(HttpRoute::responses, std::string(9 << 20, ' '), {}, 413);
    (void)f.ask(HttpRoute::chat_completions, chat(R"(,"model":"other")"), {}, 404);
    CHECK(f.submits.empty());
    CHECK(f.hub.session_count() == 0);
}

TEST_CASE("A client that goes away cancels all its answers", "[gateway][http_exchange]") {
    Fixture f;
    (void)f.start(HttpRoute::chat_completions, chat(R"(,"n":2)"));
    f.finish(0);
    f.exchange->on_disconnect();
    f.exchange.reset();
    f.collect();
    CHECK(f.cancels == std::vector<actors::RequestId>{f.submits[1].request});
    CHECK(f.hub.session_count() == 0);
}

TEST_CASE("Completions: prompts, echo and log-probabilities",
          "[gateway][http_exchange][completions]") {
    Fixture f;
    SECTION("two prompts, two answers each") {
        (void)f.start(HttpRoute::completions, R"({"prompt":["ab",[99,100]],"n":2})");
        REQUIRE(f.submits.size() == 4);
        CHECK(f.prompt(1) == "ab");
        CHECK(f.prompt(2) == "cd");
        CHECK(f.submits[3].answer_index == 1);
        for (std::size_t i = 0; i < 4; ++i)
            f.finish(i);
        const auto body = f.reply();
        CHECK(body.at("object") == "text_completion");
        CHECK(body.at("choices").at(3).at("index").as_int64() == 3);
        CHECK(body.at("usage").at("prompt_tokens").as_int64() == 4);
    }
    SECTION("echo") {
        (void)f.start(HttpRoute::completions, R"({"prompt":[99,100],"echo":true,"stream":true})");
        f.tokens(0, "ef");
        f.finish(0);
        std::string text;
        for (const auto& event : events_of(f.chunks())) {
            if (event.is_object()) text += event.at("choices").at(0).at("text").as_string();
        }
        CHECK(text == "cdef");
    }
    SECTION("logprobs") {
        (void)f.start(HttpRoute::completions, R"({"prompt":"x","logprobs":1})");
        f.tokens(0, "\xC3\xA9!");
        f.finish(0);
        const auto body = f.reply();
        const auto& logprobs = body.at("choices").at(0).at("logprobs");
        CHECK(json::serialize(logprobs.at("tokens")) == R"(["bytes:\\xc3","bytes:\\xa9","!"])");
        CHECK(json::serialize(logprobs.at("text_offset")) == "[0,1,1]");
        CHECK(logprobs.at("top_logprobs").at(0).as_object().contains("<|end|>"));
    }
}

TEST_CASE("Completions: the prompt's own log-probabilities",
          "[gateway][http_exchange][completions]") {
    Fixture f;
    const auto start = [&f](const std::string& more) {
        (void)f.start(HttpRoute::completions,
                      R"({"prompt":"abc","echo":true,"logprobs":1,"max_tokens":2)" + more + "}");
        REQUIRE(f.submits.size() == 2);
        CHECK(f.submits[0].prefill_only);
        CHECK(f.submits[0].score_prompt);
        CHECK_FALSE(f.submits[1].prefill_only);
        CHECK(f.prompt(0) == f.prompt(1));
    };
    SECTION("as one object, whoever ends first") {
        start("");
        f.scores(0, 1, 1);
        f.tokens(1, "de");
        f.finish(1);
        CHECK(f.exchange->state() == Started::undecided);
        f.scores(0, 2, 1);
        f.finish(0);
        const auto body = f.reply();
        const auto& choice = body.at("choices").at(0);
        CHECK(choice.at("text") == "abcde");
        const auto& logprobs = choice.at("logprobs");
        CHECK(json::serialize(logprobs.at("tokens")) == R"(["a","b","c","d","e"])");
        CHECK(json::serialize(logprobs.at("text_offset")) == "[0,1,2,3,4]");
        const auto& chosen = logprobs.at("token_logprobs").as_array();
        CHECK(chosen.at(0).is_null());
        CHECK(chosen.at(1).to_number<double>() == -1);
        CHECK(chosen.at(2).to_number<double>() == -2);
        CHECK(logprobs.at("top_logprobs").at(0).is_null());
        CHECK(logprobs.at("top_logprobs").at(2).as_object().size() == 1);
        // What the answer found in the cache is what the scoring had just put there.
        CHECK(body.at("usage").at("prompt_tokens_details").at("cached_tokens").as_int64() == 0);
    }
    SECTION("as a stream, before the answer") {
        start(R"(,"stream":true)");
        f.tokens(1, "de");
        CHECK(events_of(f.chunks()).empty());
        f.scores(0, 1, 2);
        f.finish(0);
        f.finish(1);
        const auto events = events_of(f.chunks());
        REQUIRE(events.size() == 4);
        CHECK(events[0].at("choices").at(0).at("text") == "abc");
        CHECK(events[0].at("choices").at(0).at("logprobs").at("tokens").as_array().size() == 3);
        CHECK(events[1].at("choices").at(0).at("text") == "de");
        CHECK(json::serialize(events[1].at("choices").at(0).at("logprobs").at("text_offset")) ==
              "[3,4]");
    }
    SECTION("of each prompt once, whatever n") {
        (void)f.start(HttpRoute::completions,
                      R"({"prompt":["ab","cd"],"n":2,"echo":true,"logprobs":0,"max_tokens":0})");
        REQUIRE(f.submits.size() == 6);
        CHECK(f.submits[3].score_prompt);
        for (const std::size_t i : {0U, 3U}) {
            f.scores(i, 1, 1);
            f.finish(i);
        }
        for (const std::size_t i : {1U, 2U, 4U, 5U})
            f.finish(i, actors::FinishReason::length);
        const auto body = f.reply();
        CHECK(body.at("usage").at("prompt_tokens").as_int64() == 4);
        const auto& last = body.at("choices").at(3);
        CHECK(last.at("text") == "cd");
        CHECK(json::serialize(last.at("logprobs").at("tokens")) == R"(["c","d"])");
    }
    SECTION("that cannot be had are the call's error") {
        start("");
        f.finish(0, actors::FinishReason::error);
        CHECK(f.reply(500).at("error").at("code") == "server_error");
        f.collect();
        CHECK(f.cancels == std::vector<actors::RequestId>{f.submits[1].request});
    }
    SECTION("that a deadline cuts off, too") {
        start(R"(,"deadline_ms":100)");
        f.finish(0, actors::FinishReason::deadline);
        CHECK(f.reply(408).at("error").at("param") == "deadline_ms");
    }
    SECTION("are no longer computed when the client is gone") {
        start("");
        f.exchange->on_disconnect();
        f.collect();
        CHECK(f.cancels.size() == 2);
    }
}

TEST_CASE("A response over HTTP, kept, read, continued and deleted",
          "[gateway][http_exchange][responses]") {
    Fixture f;
    CHECK(f.start(HttpRoute::responses, R"({"input":"hi"})") == Started::undecided);
    f.tokens(0, "Yes");
    f.finish(0);
    const auto body = f.reply();
    CHECK(body.at("status") == "completed");
    const std::string id(body.at("id").as_string());
    CHECK(f.ask(HttpRoute::response_get, "", id) == body);
    CHECK(f.start(HttpRoute::response_get, "", id, 2) == Started::reply);
    (void)f.reply(404);
    CHECK(f.ask(HttpRoute::response_cancel, "", id) == body);
    const auto items = f.ask(HttpRoute::response_input_items, "", id);
    CHECK(items.at("data").at(0).at("content").at(0).at("text") == "hi");

    const std::string next = R"({"input":"and?","previous_response_id":")" + id + "\"}";
    CHECK(f.ask(HttpRoute::response_input_tokens, next).at("input_tokens").as_int64() ==
          static_cast<std::int64_t>(std::string("user=hi;assistant=Yes;user=and?;").size()));
    (void)f.start(HttpRoute::responses, next);
    CHECK(f.prompt(1) == "user=hi;assistant=Yes;user=and?;");

    CHECK(f.ask(HttpRoute::response_delete, "", id).at("deleted").as_bool());
    (void)f.ask(HttpRoute::response_get, "", id, 404);
    (void)f.ask(HttpRoute::response_delete, "", id, 404);
    (void)f.ask(HttpRoute::response_cancel, "", id, 404);
    (void)f.ask(HttpRoute::responses, next, {}, 400);
}

TEST_CASE("A response as server-sent events", "[gateway][http_exchange][responses]") {
    Fixture f;
    CHECK(f.start(HttpRoute::responses, R"({"input":"hi","stream":true})") == Started::stream);
    CHECK(f.chunks().starts_with("event: response.created\ndata: {\"type\":\"response.created\","));
    CHECK_FALSE(f.exchange->finished());
    f.tokens(0, "Yes");
    f.finish(0);
    const std::string rest = f.chunks();
    CHECK(rest.find("event: response.completed\ndata: ") != std::string::npos);
    CHECK(rest.find("[DONE]") == std::string::npos);
    CHECK(f.exchange->finished());
}

TEST_CASE("Any live response is cancelled by its id, by its owner",
          "[gateway][http_exchange][responses]") {
    Fixture f;
    ClientStream stream(f.hub, f.served, test::client(), [] {});
    CHECK_FALSE(stream.on_message(R"({"type":"response.create","input":"hi"})"));
    std::string frame;
    REQUIRE(stream.next_frame(frame));
    const auto created = json::parse(frame);
    const std::string id(created.at("response").at("id").as_string());
    CHECK(f.start(HttpRoute::response_cancel, "", id, 2) == Started::reply);
    (void)f.reply(404);
    (void)f.ask(HttpRoute::response_cancel, "", id);
    CHECK(f.cancels.size() == 1);
    f.exchange.reset();
}

TEST_CASE("A key that has used up its rate is told when to come back",
          "[gateway][http_exchange][rates]") {
    Fixture f;
    auto who = test::client();
    who.principal.requests_per_minute = 2;
    const auto ask = [&] {
        HttpExchange exchange(f.hub, f.served, who, [] {});
        const auto started = exchange.start(HttpRoute::chat_completions, chat(""));
        return started == Started::reply ? exchange.take_reply() : HttpReply{};
    };
    CHECK(ask().status == 200);
    CHECK(ask().status == 200);
    const HttpReply refused = ask();
    CHECK(refused.status == 429);
    CHECK(refused.headers == HttpHeaders{{"Retry-After", "30"}});
    CHECK(json::parse(refused.body).at("error").at("code") == "rate_limit_exceeded");
    const HttpHeaders told = rate_limit_headers(f.hub.rates(who.principal));
    CHECK(told == HttpHeaders{{"x-ratelimit-limit-requests", "2"},
                              {"x-ratelimit-remaining-requests", "0"},
                              {"x-ratelimit-reset-requests", "60000ms"}});
    CHECK(rate_limit_headers(f.hub.rates(test::client().principal)).empty());
}

TEST_CASE("The tokenizer's routes", "[gateway][http_exchange][tokenize]") {
    Fixture f;
    const auto info = f.ask(HttpRoute::tokenizer_info, "");
    CHECK(info.at("eos_token") == "<|end|>");
    CHECK(info.at("bos_token").is_null());
    CHECK(info.at("chat_template").as_string().starts_with("{% for m in messages %}"));
    CHECK(json::serialize(f.ask(HttpRoute::tokenize, R"({"content":"ab"})")) ==
          R"({"tokens":[97,98],"count":2,"max_model_len":4096,"token_strs":null})");
    CHECK(json::serialize(
              f.ask(HttpRoute::tokenize, R"({"prompt":"\u00e9","return_token_strs":true})")
                  .at("token_strs")) == R"(["bytes:\\xc3","bytes:\\xa9"])");
    CHECK(f.ask(HttpRoute::tokenize, R"({"messages":[{"role":"user","content":"hi"}]})")
              .at("count")
              .as_int64() == 8);
    CHECK(f.ask(HttpRoute::detokenize, R"({"tokens":[195,169,256,33]})").at("prompt") ==
          "\xC3\xA9!");
    CHECK(f.ask(HttpRoute::apply_template, R"({"messages":[{"role":"user","content":"hi"}]})")
              .at("prompt") == "user=hi;");
    (void)f.ask(HttpRoute::tokenize, "{}", {}, 400);
    (void)f.ask(HttpRoute::detokenize, R"({"tokens":[257]})", {}, 400);
    (void)f.ask(HttpRoute::detokenize, R"({"tokens":"x"})", {}, 400);
    (void)f.ask(HttpRoute::apply_template, R"({"messages":[]})", {}, 400);
}

TEST_CASE("A large text is tokenised elsewhere", "[gateway][http_exchange][tokenize]") {
    Fixture f;
    const std::string body = R"({"content":")" + std::string(20000, 'x') + "\"}";
    CHECK(f.start(HttpRoute::tokenize, body) == Started::undecided);
    f.run_helpers();
    CHECK(f.wakes == 1);
    CHECK(f.reply().at("count").as_int64() == 20000);
    CHECK(f.start(HttpRoute::chat_completions, R"({"messages":[{"role":"user","content":")" +
                                                   std::string(20000, 'x') + "\"}]}") ==
          Started::undecided);
    f.run_helpers();
    CHECK(f.reply(400).at("error").at("code") == "context_length_exceeded");
    CHECK(f.start(HttpRoute::tokenize, body) == Started::undecided);
    f.exchange.reset();
    f.run_helpers();  // nobody is there any more
    CHECK(f.wakes == 2);
}

TEST_CASE("Models are listed and looked up", "[gateway][http_exchange][models]") {
    Fixture f;
    const auto list = f.ask(HttpRoute::models, "");
    CHECK(list.at("data").as_array().size() == 2);
    CHECK(list.at("data").at(0).at("id") == "tiny");
    CHECK(list.at("data").at(0).at("max_model_len").as_int64() == 4096);
    CHECK(f.ask(HttpRoute::model_get, "", "pet").at("root") == "tiny");
    (void)f.ask(HttpRoute::model_get, "", "gpt-9", 404);
}

TEST_CASE("A deadline counts from the request's arrival", "[gateway][http_exchange][chat]") {
    Fixture f;
    f.clock.advance_to(f.clock.now() + std::chrono::seconds(7));
    CHECK(f.start(HttpRoute::chat_completions, chat(R"(,"deadline_ms":1500)")) ==
          Started::undecided);
    REQUIRE(f.submits.size() == 1);
    CHECK(f.submits[0].deadline == f.clock.now() + std::chrono::milliseconds(1500));
    f.tokens(0, "He");
    f.finish(0, actors::FinishReason::deadline);
    const auto body = f.reply();
    const auto& choice = body.at("choices").at(0);
    CHECK(choice.at("message").at("content") == "He");
    CHECK(choice.at("finish_reason") == "length");
    CHECK(choice.at("troupe").at("finish_reason") == "deadline");

    CHECK(f.start(HttpRoute::chat_completions, chat("")) == Started::undecided);
    CHECK_FALSE(f.submits.at(1).deadline.has_value());
}

TEST_CASE("A chat that leaves out old turns says how many messages", "[gateway][http_exchange]") {
    Fixture f;
    f.served.context_length = 40;
    const std::string messages =
        R"({"seed":3,"messages":[{"role":"user","content":"0123456789"},)"
        R"({"role":"assistant","content":"0123456789"},{"role":"user","content":"hi"}])";
    CHECK(f.ask(HttpRoute::chat_completions, messages + "}", {}, 400).at("error").at("code") ==
          "context_length_exceeded");
    CHECK(f.start(HttpRoute::chat_completions, messages + R"(,"truncation":"auto"})") ==
          Started::undecided);
    CHECK(f.prompt(0) == "user=hi;");
    f.finish(0);
    CHECK(f.reply().at("choices").at(0).at("troupe").at("truncation").at("dropped_messages") == 2);
}

TEST_CASE("A chat's tools reach the template, or are refused by name", "[gateway][http_exchange]") {
    const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"look"}}])";
    Fixture plain;
    const auto error = plain.ask(HttpRoute::chat_completions, chat(tools), {}, 400).at("error");
    CHECK(error.at("code") == "unsupported_parameter");
    CHECK(error.at("param") == "tools");
    plain.ask(HttpRoute::chat_completions, chat(R"(,"tools":[{"type":"function"}])"), {}, 400);
    plain.ask(HttpRoute::chat_completions, chat(R"(,"tools":{})"), {}, 400);

    Fixture f;
    f.chat_template = *model::ChatTemplate::compile(
        "{% for t in tools %}{{ t.function.name }};{% endfor %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}",
        "", "");
    CHECK(f.start(HttpRoute::chat_completions, chat(tools)) == Started::undecided);
    CHECK(f.prompt(0) == "look;hi");
    CHECK(f.start(HttpRoute::chat_completions, chat(tools + R"(,"tool_choice":"none")")) ==
          Started::undecided);
    CHECK(f.prompt(1) == "hi");
}

TEST_CASE("An answer says where system messages went", "[gateway][http_exchange]") {
    Fixture f;
    f.chat_template = *model::ChatTemplate::compile(
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        "{{ m.content }}{% endfor %}",
        "", "");
    const std::string messages = R"({"seed":3,"messages":[{"role":"system","content":"Be."},)"
                                 R"({"role":"user","content":"hi"}]})";
    CHECK(f.start(HttpRoute::chat_completions, messages) == Started::undecided);
    CHECK(f.prompt(0) == "Be.\nhi");
    f.finish(0);
    CHECK(f.reply().at("choices").at(0).at("troupe").at("system_in_user") == true);

    CHECK(f.start(HttpRoute::chat_completions, chat("")) == Started::undecided);
    f.finish(1);
    CHECK_FALSE(f.reply().at("choices").at(0).at("troupe").as_object().contains("system_in_user"));
}

TEST_CASE("A template's refusal is told in its own words", "[gateway][http_exchange]") {
    Fixture f;
    f.chat_template = *model::ChatTemplate::compile(
        "{% if messages|length > 1 %}{{ raise_exception('One at a time!') }}{% endif %}"
        "{{ messages[0].content }}",
        "", "");
    const auto error =
        f.ask(HttpRoute::chat_completions,
              R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]})", {},
              400)
            .at("error");
    CHECK(error.at("message") == "the model's template refuses the conversation: One at a time!");
    CHECK(error.at("param") == "messages");
}
