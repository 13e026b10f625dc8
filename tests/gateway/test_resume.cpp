// Answers that outlive their connection, as clients see them: over a socket and as server-sent
// events.
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
    [[nodiscard]] std::unique_ptr<ClientStream> connect(std::uint64_t principal = 1) {
        return std::make_unique<ClientStream>(hub, served, test::client(principal), [] {});
    }
    [[nodiscard]] std::unique_ptr<HttpExchange> exchange(std::uint64_t principal = 1) {
        return std::make_unique<HttpExchange>(hub, served, test::client(principal), [] {});
    }
    std::vector<json::object> send(ClientStream& stream, std::string_view message) {
        CHECK_FALSE(stream.on_message(message));
        return frames(stream);
    }
    std::vector<json::object> frames(ClientStream& stream) {
        std::vector<json::object> all;
        std::string frame;
        while (stream.next_frame(frame)) {
            all.push_back(json::parse(frame).as_object());
            frame.clear();
        }
        collect();
        return all;
    }
    static std::string types(const std::vector<json::object>& events) {
        std::string words;
        for (const auto& event : events)
            words += std::string(event.at("type").as_string()) + " ";
        return words;
    }
};

std::string resume(const std::string& id, const std::string& more = "") {
    return R"({"type":"troupe:response.resume","response_id":")" + id + "\"" + more + "}";
}

}  // namespace

TEST_CASE("An answer is read on by the next connection, and as server-sent events",
          "[gateway][resume]") {
    Fixture f;
    auto first = f.connect();
    const auto created = f.send(*first, R"({"type":"response.create","input":"hi"})");
    const std::string id(created.at(0).at("response").at("id").as_string());
    f.tokens(0, "ab");
    CHECK(f.frames(*first).size() == 4);
    first.reset();
    CHECK(f.cancels.empty());
    f.tokens(0, "cd");

    auto second = f.connect();
    auto told = f.send(*second, resume(id, R"(,"starting_after":4,"stream_id":"s")"));
    REQUIRE(told.size() == 1);
    CHECK(told[0].at("delta") == "cd");
    CHECK(told[0].at("sequence_number") == 5);
    CHECK(told[0].at("stream_id") == "s");

    auto snapshot = f.connect();
    told = f.send(*snapshot, resume(id, R"(,"mode":"snapshot")"));
    REQUIRE(told.size() == 1);
    CHECK(told[0].at("type") == "response.in_progress");
    CHECK(told[0].at("sequence_number") == 5);
    const auto& message = told[0].at("response").at("output").at(0);
    CHECK(message.at("status") == "in_progress");
    CHECK(message.at("content").at(0).at("text") == "abcd");

    auto sse = f.exchange();
    CHECK(sse->start(HttpRoute::response_get, "", id, "stream=true&starting_after=4") ==
          Started::stream);
    f.finish(0);
    std::string events;
    while (sse->next_chunk(events)) {
    }
    CHECK(sse->finished());
    CHECK(events.find(R"("delta":"cd")") != std::string::npos);
    CHECK(events.find("event: response.completed\n") != std::string::npos);
    CHECK(Fixture::types(f.frames(*second)) ==
          "response.output_text.done response.content_part.done response.output_item.done "
          "response.completed ");
}

TEST_CASE("A resume that cannot be is an error that names why", "[gateway][resume]") {
    Fixture f;
    auto stream = f.connect();
    const auto code = [&](const std::string& message) {
        const auto told = f.send(*stream, message);
        REQUIRE(told.size() == 1);
        CHECK(told[0].at("type") == "error");
        return std::string(told[0].at("code").as_string());
    };
    CHECK(code(resume("resp_none")) == "response_not_found");
    CHECK(code(resume("resp_none", R"(,"mode":"all")")) == "invalid_parameter");
    CHECK(code(resume("resp_none", R"(,"starting_after":-2)")) == "invalid_parameter");
    auto http = f.exchange();
    CHECK(http->start(HttpRoute::response_get, "", "resp_none", "stream=true") == Started::reply);
    CHECK(http->take_reply().status == 404);
    http = f.exchange();
    CHECK(http->start(HttpRoute::response_get, "", "resp_none", "stream=true&starting_after=x") ==
          Started::reply);
    CHECK(http->take_reply().status == 400);
    http = f.exchange();
    CHECK(http->start(HttpRoute::response_get, "", "resp_none", "stream=yes") == Started::reply);
    CHECK(http->take_reply().status == 400);
    http = f.exchange();
    CHECK(http->start(HttpRoute::response_get, "", "resp_none", "starting_after=-1") ==
          Started::reply);
    CHECK(http->take_reply().status == 400);
}

TEST_CASE("background over HTTP answers at once and is read later", "[gateway][resume]") {
    Fixture f;
    auto post = f.exchange();
    CHECK(post->start(HttpRoute::responses, R"({"input":"hi","background":true})") ==
          Started::reply);
    const auto begun = json::parse(post->take_reply().body);
    CHECK(begun.at("status") == "in_progress");
    CHECK(begun.at("background") == true);
    const std::string id(begun.at("id").as_string());
    post.reset();
    f.collect();
    f.tokens(0, "ab");
    const auto get = [&] {
        auto http = f.exchange();
        CHECK(http->start(HttpRoute::response_get, "", id) == Started::reply);
        return json::parse(http->take_reply().body);
    };
    CHECK(get().at("status") == "in_progress");
    f.finish(0);
    CHECK(get().at("status") == "completed");
    CHECK(get().at("output").at(0).at("content").at(0).at("text") == "ab");
}

TEST_CASE("Who leaves before a JSON answer cancels it", "[gateway][resume]") {
    Fixture f;
    auto post = f.exchange();
    CHECK(post->start(HttpRoute::responses, R"({"input":"hi"})") == Started::undecided);
    f.collect();
    post.reset();
    f.collect();
    CHECK(f.cancels.size() == 1);
}
