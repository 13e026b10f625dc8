// best_of and beam search at the completions doors, with the test as socket and as scheduler.
#include <catch2/catch.hpp>

#include "gateway/http_exchange.hpp"
#include "tests/gateway/test_wire_support.hpp"

using namespace troupe;
using namespace troupe::gateway;
using troupe::test::HubFixture;
namespace json = boost::json;
using Started = HttpExchange::Started;

namespace {

struct Fixture : HubFixture {
    Started ask(HttpRoute route, std::string_view body) {
        exchange.emplace(hub, served, test::client(), [] {});
        const Started started = exchange->start(route, body);
        collect();
        return started;
    }
    json::value reply(unsigned status = 200) {
        REQUIRE(exchange->state() == Started::reply);
        const HttpReply got = exchange->take_reply();
        CHECK(got.status == status);
        return json::parse(got.body);
    }
    std::string refusal(HttpRoute route, std::string_view body) {
        (void)ask(route, body);
        const json::value error = reply(400).at("error");
        return json::value_to<std::string>(error.at("param")) + ": " +
               json::value_to<std::string>(error.at("message"));
    }
    // The whole answer of `request`: tokens of one log-probability, and its end.
    void answer(const actors::Submit& submit, actors::RequestId request, std::string_view text,
                float logprob) {
        actors::Delivery delivery;
        for (const char byte : text)
            delivery.tokens.push_back({.id = static_cast<unsigned char>(byte), .logprob = logprob});
        const auto count = static_cast<std::uint32_t>(text.size());
        const actors::SessionId session = submit.reply_to.session;
        if (count > 0)
            delivery.events.emplace_back(actors::TokenRun{session, request, 0, 0, count});
        actors::Finished finished;
        finished.session = session;
        finished.request = request;
        finished.usage = {.prompt_tokens = 2, .cached_tokens = 0, .generated_tokens = count};
        delivery.events.emplace_back(finished);
        hub.on(delivery);
    }
    void answer(std::size_t index, std::string_view text, float logprob) {
        answer(submits.at(index), submits.at(index).request, text, logprob);
    }
    std::optional<HttpExchange> exchange;
};

std::string text_of(const json::value& body, std::size_t choice) {
    return json::value_to<std::string>(body.at("choices").at(choice).at("text"));
}

}  // namespace

TEST_CASE("best_of makes more answers than it tells, the best by mean log-probability",
          "[gateway][http_exchange][best_of]") {
    Fixture f;
    (void)f.ask(HttpRoute::completions, R"({"prompt":["ab","cd"],"n":2,"best_of":3})");
    REQUIRE(f.submits.size() == 6);
    CHECK(f.submits[2].answer_index == 2);
    CHECK(f.submits[2].params.logprobs);  // to rank by
    f.answer(0, "long and unlikely", -3.0F);
    f.answer(1, "xy", -0.5F);
    f.answer(2, "best", -0.25F);
    f.answer(3, "", 0.0F);  // an end at once ranks last
    f.answer(4, "q", -9.0F);
    f.answer(5, "r", -9.0F);  // equal ones stay in order
    const json::value body = f.reply();
    REQUIRE(body.at("choices").as_array().size() == 4);
    CHECK(text_of(body, 0) == "best");
    CHECK(text_of(body, 1) == "xy");
    CHECK(text_of(body, 2) == "q");
    CHECK(text_of(body, 3) == "r");
    CHECK(body.at("choices").at(3).at("index").as_int64() == 3);
    CHECK(body.at("choices").at(0).at("logprobs").is_null());
    CHECK(body.at("choices").at(0).at("troupe").at("best_of").as_int64() == 3);
    CHECK(body.at("choices").at(1).at("troupe").at("mean_logprob").as_double() == -0.5);
    CHECK(body.at("usage").at("completion_tokens").as_int64() == 17 + 2 + 4 + 0 + 1 + 1);
    CHECK(body.at("usage").at("prompt_tokens").as_int64() == 4);
}

TEST_CASE("beams are one request with n answers of one stop flag",
          "[gateway][http_exchange][beams]") {
    Fixture f;
    (void)f.ask(HttpRoute::completions,
                R"({"prompt":"ab","beam_width":4,"n":2,"length_penalty":0.5,"temperature":0})");
    REQUIRE(f.submits.size() == 1);
    const actors::Submit& submit = f.submits[0];
    CHECK(submit.answers == 2);
    CHECK(submit.params.beam_width == 4);
    CHECK(submit.params.length_penalty == 0.5);
    SECTION("answered") {
        f.answer(submit, submit.request, "one", -1.0F);
        CHECK(f.exchange->state() == Started::undecided);
        f.answer(submit, submit.request + 1, "two", -2.0F);
        const json::value body = f.reply();
        CHECK(text_of(body, 0) == "one");
        CHECK(text_of(body, 1) == "two");
        const json::value& told = body.at("choices").at(0).at("troupe").at("parameters");
        CHECK(told.at("beam_width").as_int64() == 4);
        CHECK(told.at("length_penalty").as_double() == 0.5);
        CHECK(body.at("usage").at("completion_tokens").as_int64() == 6);
        CHECK_FALSE(f.hub.refuse({.id = 1, .weight = 1}, 1).has_value());
    }
    SECTION("abandoned") {
        f.exchange->on_disconnect();
        f.exchange.reset();
        f.collect();
        CHECK(f.cancels == std::vector<actors::RequestId>{submit.request});
    }
    SECTION("refused") {
        f.reject(0, actors::Rejected::Reason::too_wide);
        const json::value error = f.reply(400).at("error");
        CHECK(error.at("code") == "invalid_parameter");
        CHECK(error.at("param") == "beam_width");
    }
}

TEST_CASE("beam search streams its answers as any other, when they are known",
          "[gateway][http_exchange][beams]") {
    Fixture f;
    (void)f.ask(HttpRoute::chat_completions,
                R"({"messages":[{"role":"user","content":"a"}],"beam_width":2,"stream":true})");
    f.answer(0, "word", -1.0F);
    REQUIRE(f.exchange->state() == Started::stream);
    std::string all;
    while (f.exchange->next_chunk(all)) {
    }
    CHECK(all.find(R"("content":"word")") != std::string::npos);
    CHECK(all.ends_with("data: [DONE]\n\n"));
}

TEST_CASE("what cannot be ranked or searched is refused by name, value and range",
          "[gateway][http_exchange][beams][best_of]") {
    Fixture f;
    const auto completion = [&](std::string_view fields) {
        return f.refusal(HttpRoute::completions, R"({"prompt":"ab",)" + std::string(fields) + "}");
    };
    CHECK(completion(R"("best_of":21)").starts_with("best_of: best_of is 21"));
    CHECK(completion(R"("n":3,"best_of":2)") ==
          "best_of: best_of is 2, but must be at least n, which is 3.");
    CHECK(completion(R"("best_of":2,"stream":true)").starts_with("stream: stream is true"));
    CHECK(completion(R"("beam_width":17)").starts_with("beam_width: beam_width is 17"));
    CHECK(completion(R"("length_penalty":-11)").starts_with("length_penalty: "));
    CHECK(completion(R"("beam_width":2,"n":3)") ==
          "n: n is 3, but with a beam_width of 2 it must be between 1 and 2.");
    CHECK(completion(R"("beam_width":4,"best_of":4)") ==
          "best_of: best_of is 4, but with beam_width it must be n, which is 1.");
    CHECK(completion(R"("beam_width":4,"temperature":0.7)") ==
          "temperature: temperature is 0.7, but with beam_width it must be 0 or 1.");
    CHECK(completion(R"("beam_width":4,"logprobs":2)")
              .starts_with("top_logprobs: top_logprobs is 2"));
    CHECK(completion(R"("beam_width":4,"presence_penalty":1)").starts_with("presence_penalty: "));
    const std::string prompts = R"({"prompt":["a","b","c","d","e","f","g"],"best_of":20})";
    CHECK(f.refusal(HttpRoute::completions, prompts) ==
          "best_of: best_of times the number of prompts is 140, but must be at most 128.");
    CHECK(f.submits.empty());
}
