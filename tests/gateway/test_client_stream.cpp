// One WebSocket client from message to frame, with the test as socket and as scheduler.
#include "gateway/client_stream.hpp"

#include <catch2/catch.hpp>
#include <random>

#include "gateway/json_writer.hpp"
#include "tests/gateway/test_wire_support.hpp"

using namespace troupe;
using namespace troupe::gateway;
using troupe::test::HubFixture;
namespace json = boost::json;

namespace {

struct Fixture : HubFixture {
    explicit Fixture(ClientContext context = test::client(), Authenticate authenticate = {})
        : stream(
              hub, served, std::move(context), [this] { ++wakes; }, std::move(authenticate)) {}

    std::optional<Close> send(std::string_view text) {
        auto close = stream.on_message(text);
        collect();
        return close;
    }
    std::vector<json::object> frames() {
        std::vector<json::object> all;
        std::string frame;
        while (stream.next_frame(frame)) {
            all.push_back(json::parse(frame).as_object());
            frame.clear();
        }
        collect();
        return all;
    }
    std::string types() {
        std::string words;
        for (const auto& frame : frames()) {
            if (!words.empty()) words += " ";
            words += frame.at("type").as_string();
        }
        return words;
    }
    int wakes = 0;
    ClientStream stream;
};

const char* const kCreate = R"({"type":"response.create","input":"hi"})";

std::vector<std::string> keys_of(const json::object& object) {
    std::vector<std::string> keys;
    for (const auto& field : object)
        keys.emplace_back(field.key());
    return keys;
}

}  // namespace

TEST_CASE("A conversation over a socket, from create to completed", "[gateway][client_stream]") {
    Fixture f;
    CHECK(f.frames().empty());
    CHECK_FALSE(f.send(kCreate));
    REQUIRE(f.submits.size() == 1);
    CHECK(f.prompt(0) == "user=hi;");
    CHECK(f.submits[0].cache_salt == 1);
    CHECK(f.wakes == 0);
    f.tokens(0, "Hel");
    f.tokens(0, "lo \"x\"\n");
    CHECK(f.wakes == 2);
    f.finish(0);
    const auto frames = f.frames();
    std::string types;
    for (const auto& frame : frames)
        types += std::string(frame.at("type").as_string()) + " ";
    CHECK(types ==
          "response.created response.in_progress response.output_item.added "
          "response.content_part.added response.output_text.delta response.output_text.done "
          "response.content_part.done response.output_item.done response.completed ");
    for (std::size_t i = 0; i < frames.size(); ++i) {
        CHECK(frames[i].at("sequence_number").to_number<std::size_t>() == i);
        CHECK_FALSE(frames[i].contains("stream_id"));
    }
    CHECK(frames[4].at("delta").as_string() == "Hello \"x\"\n");
    CHECK(frames[4].at("logprobs").as_array().empty());
    CHECK(f.stream.idle());
    CHECK(f.stream.pending_bytes() == 0);
}

TEST_CASE("Frames look exactly like this", "[gateway][client_stream][golden]") {
    Fixture f;
    CHECK_FALSE(f.send(R"({"type":"response.create","input":"hi","stream_id":"a","seed":42})"));
    f.tokens(0, "A");
    std::string frame;
    for (int i = 0; i < 5; ++i) {
        frame.clear();
        REQUIRE(f.stream.next_frame(frame));
        if (i == 2)
            CHECK(frame ==
                  R"({"type":"response.output_item.added","sequence_number":2,"stream_id":"a",)"
                  R"("output_index":0,"item":{"id":"msg_00000000000000010000000000000800",)"
                  R"("type":"message","status":"in_progress","role":"assistant","content":[]}})");
        if (i == 3)
            CHECK(frame ==
                  R"({"type":"response.content_part.added","sequence_number":3,"stream_id":"a",)"
                  R"("item_id":"msg_00000000000000010000000000000800","output_index":0,)"
                  R"("content_index":0,"part":{"type":"output_text","text":"","annotations":[],)"
                  R"("logprobs":[]}})");
    }
    CHECK(frame == R"({"type":"response.output_text.delta","sequence_number":4,"stream_id":"a",)"
                   R"("item_id":"msg_00000000000000010000000000000800","output_index":0,)"
                   R"("content_index":0,"delta":"A","logprobs":[]})");
}

TEST_CASE("A response object has all its keys, always", "[gateway][client_stream]") {
    const std::vector<std::string> always{"id",
                                          "object",
                                          "created_at",
                                          "completed_at",
                                          "status",
                                          "incomplete_details",
                                          "error",
                                          "model",
                                          "previous_response_id",
                                          "instructions",
                                          "output",
                                          "tools",
                                          "tool_choice",
                                          "truncation",
                                          "parallel_tool_calls",
                                          "text",
                                          "top_p",
                                          "temperature",
                                          "presence_penalty",
                                          "frequency_penalty",
                                          "top_logprobs",
                                          "reasoning",
                                          "max_output_tokens",
                                          "max_tool_calls",
                                          "store",
                                          "background",
                                          "service_tier",
                                          "metadata",
                                          "safety_identifier",
                                          "prompt_cache_key",
                                          "usage"};
    Fixture f;
    CHECK_FALSE(
        f.send(R"({"type":"response.create","input":"hi","metadata":{"k":"v"},"seed":42,)"
               R"("stop":["!"],"text":{"verbosity":"low"},"instructions":"be \"brief\""})"));
    f.tokens(0, "Hm!");
    f.finish(0, actors::FinishReason::stop, {.stop_string = 0, .stop_token = -1});
    const auto frames = f.frames();
    const auto& first = frames.front().at("response").as_object();
    const auto& last = frames.back().at("response").as_object();
    CHECK(keys_of(first) == always);
    auto with_facts = always;
    with_facts.emplace_back("troupe");
    CHECK(keys_of(last) == with_facts);

    CHECK(first.at("created_at").as_int64() == 1000);
    CHECK(first.at("completed_at").is_null());
    CHECK(first.at("status") == "in_progress");
    CHECK(first.at("output").as_array().empty());
    CHECK(json::serialize(first.at("usage")) ==
          R"({"input_tokens":0,"input_tokens_details":{"cached_tokens":0,"cache_write_tokens":0},)"
          R"("output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0})");
    CHECK(json::serialize(last.at("metadata")) == R"({"k":"v"})");
    CHECK(last.at("instructions") == "be \"brief\"");
    CHECK(last.at("text").at("format").at("type") == "text");
    CHECK(last.at("status") == "completed");
    CHECK(last.at("completed_at").is_int64());
    CHECK(last.at("output").at(0).at("content").at(0).at("text") == "Hm");
    CHECK(last.at("usage").at("output_tokens").as_int64() == 3);
    CHECK(last.at("troupe").at("seed").as_int64() == 42);
    CHECK(last.at("troupe").at("stop_reason") == "!");
    CHECK(last.at("troupe").at("prompt_ms").to_number<double>() == 5);
    CHECK(last.at("troupe").at("tokens_per_second").to_number<double>() == 200);
}

TEST_CASE("A seed that the server draws is returned", "[gateway][client_stream]") {
    Fixture f;
    CHECK_FALSE(f.send(kCreate));
    f.finish(0);
    const auto frames = f.frames();
    const auto seed = frames.back().at("response").at("troupe").at("seed").as_int64();
    CHECK(static_cast<std::uint64_t>(seed) == f.submits[0].params.seed);
    CHECK(seed < (std::int64_t{1} << 53));
}

TEST_CASE("Log-probabilities come with their tokens, never -Infinity", "[gateway][client_stream]") {
    Fixture f;
    CHECK_FALSE(f.send(R"({"type":"response.create","input":"hi","top_logprobs":1})"));
    auto delivery =
        test::text_delivery(f.submits[0].reply_to.session, f.submits[0].request, 0, "A");
    delivery.top[0].logprob = -std::numeric_limits<float>::infinity();
    f.hub.on(delivery);
    const auto frames = f.frames();
    CHECK(json::serialize(frames.back().at("logprobs")) ==
          R"([{"token":"A","logprob":-6.499999761581421E-1,"bytes":[65],)"
          R"("top_logprobs":[{"token":"<|end|>","logprob":null,"bytes":[]}]}])");
}

TEST_CASE("A cancelled response says so", "[gateway][client_stream]") {
    Fixture f;
    CHECK_FALSE(f.send(kCreate));
    f.tokens(0, "A");
    (void)f.frames();
    CHECK_FALSE(f.send(R"({"type":"response.cancel"})"));
    REQUIRE(f.cancels.size() == 1);
    CHECK(f.submits[0].stop->requested());
    f.finish(0, actors::FinishReason::cancelled);
    const auto frames = f.frames();
    CHECK(frames.back().at("type") == "response.incomplete");
    const auto& response = frames.back().at("response").as_object();
    CHECK(response.at("status") == "cancelled");
    CHECK(response.at("incomplete_details").is_null());
    CHECK(response.at("troupe").at("finish_reason") == "cancelled");
    CHECK(response.at("output").at(0).at("status") == "incomplete");
}

TEST_CASE("Errors have both shapes, and echo the event", "[gateway][client_stream][golden]") {
    Fixture f;
    CHECK_FALSE(
        f.send(R"({"event_id":"e7","temperature":9,"input":"x","type":"response.create"})"));
    std::string frame;
    REQUIRE(f.stream.next_frame(frame));
    const std::string message = "temperature is 9, but must be a number between 0 and 2.";
    CHECK(frame == R"({"type":"error","sequence_number":0,"status":400,"code":"invalid_parameter",)"
                   R"("message":")" +
                       message +
                       R"(","param":"temperature","error":{)"
                       R"("type":"invalid_request_error","code":"invalid_parameter","message":")" +
                       message + R"(","param":"temperature","event_id":"e7"}})");
}

TEST_CASE("A long prompt is made elsewhere, and its lane waits", "[gateway][client_stream]") {
    Fixture f;
    const std::string text(20000, 'x');
    f.served.context_length = 50000;
    CHECK_FALSE(f.send(R"({"type":"response.create","input":")" + text + "\"}"));
    CHECK_FALSE(f.send(kCreate));
    CHECK(f.submits.empty());
    f.run_helpers();
    f.collect();
    CHECK(f.wakes == 1);
    REQUIRE(f.submits.size() == 1);
    CHECK(f.prompt(0) == "user=" + text + ";");
    f.finish(0);
    (void)f.frames();
    CHECK(f.submits.size() == 2);
}

TEST_CASE("A prompt that does not fit is refused with both numbers", "[gateway][client_stream]") {
    Fixture f;
    CHECK_FALSE(f.send(R"({"type":"response.create","input":")" + std::string(5000, 'x') + "\"}"));
    const auto frames = f.frames();
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].at("code") == "context_length_exceeded");
    CHECK(frames[0].at("message").as_string().find("5006") != std::string::npos);
    CHECK(frames[0].at("message").as_string().find("4096") != std::string::npos);
    CHECK(f.submits.empty());
}

TEST_CASE("troupe.v1 gets a greeting, others nothing", "[gateway][client_stream]") {
    auto context = test::client();
    context.troupe_protocol = true;
    Fixture f(context);
    const auto frames = f.frames();
    REQUIRE(frames.size() == 1);
    CHECK(frames[0].at("type") == "troupe:session");
    CHECK(frames[0].at("connection_id") == "c1");
    CHECK(frames[0].at("limits").at("in_flight").as_int64() == 16);
    CHECK_FALSE(f.send(R"({"type":"troupe:ping","t":{"a":[1]}})"));
    CHECK(json::serialize(f.frames()[0].at("t")) == R"({"a":[1]})");
}

TEST_CASE("A stranger authenticates first or goes", "[gateway][client_stream]") {
    auto stranger = test::client(0);
    stranger.authenticated = false;
    const Authenticate keys = [](std::string_view token) -> std::optional<actors::Principal> {
        if (token != "good") return std::nullopt;
        return actors::Principal{.id = 77, .weight = 2};
    };
    Fixture f(stranger, keys);
    SECTION("with a good token") {
        CHECK_FALSE(f.send(R"({"type":"troupe:auth","token":"good"})"));
        CHECK_FALSE(f.send(kCreate));
        REQUIRE(f.submits.size() == 1);
        CHECK(f.submits[0].principal == actors::Principal{77, 2});
    }
    SECTION("with a bad one") {
        CHECK(f.send(R"({"type":"troupe:auth","token":"bad"})") == Close{4401, "invalid_api_key"});
        CHECK(f.frames().at(0).at("status").as_int64() == 401);
    }
    SECTION("with anything else") {
        CHECK(f.send(kCreate)->code == 4401);
        CHECK(f.submits.empty());
    }
    SECTION("with too much") {
        CHECK(f.send(std::string(17000, ' '))->code == 1009);
    }
}

TEST_CASE("A flood of malformed messages closes, single ones do not", "[gateway][client_stream]") {
    Fixture f;
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 15; ++i)
            CHECK_FALSE(f.send("{"));
        CHECK_FALSE(f.send(R"({"type":"troupe:ping"})"));
    }
    for (int i = 0; i < 15; ++i)
        CHECK_FALSE(f.send("{"));
    CHECK(f.send("{")->code == 4400);
    CHECK(f.send(std::string((1 << 20) + 1, ' '))->code == 1009);
}

TEST_CASE("A client that goes away cancels its work and is forgotten", "[gateway][client_stream]") {
    Fixture f;
    CHECK_FALSE(f.send(R"({"type":"response.create","input":"hi","store":false})"));
    f.tokens(0, "A");
    f.stream.on_disconnect();
    f.stream.on_disconnect();
    f.collect();
    CHECK(f.cancels.size() == 1);
    CHECK(f.submits[0].stop->reason() == runtime::StopReason::disconnected);
    CHECK(f.hub.session_count() == 0);
    f.finish(0, actors::FinishReason::cancelled);
    CHECK(f.hub.live().size() == 0);
    CHECK(f.hub.requests_live() == 0);
    CHECK(f.frames().empty());
}

TEST_CASE("Concatenated deltas are the whole text, whenever frames are pulled",
          "[gateway][client_stream][property]") {
    std::mt19937 random(4711);
    const char* const pieces[] = {"a", "\"", "\\", "\n", "\xC3\xA9", "\xF0\x9F\x98\x8A", "stop"};
    for (int round = 0; round < 100; ++round) {
        Fixture f;
        CHECK_FALSE(f.send(R"({"type":"response.create","input":"hi","stop":["stopstop"]})"));
        std::string text;
        for (int i = 0; i < 30; ++i)
            text += pieces[random() % std::size(pieces)];
        std::vector<json::object> frames;
        for (std::size_t begin = 0; begin < text.size();) {
            const std::size_t count = std::min<std::size_t>(1 + random() % 5, text.size() - begin);
            f.tokens(0, std::string_view(text).substr(begin, count));
            begin += count;
            std::string frame;
            for (std::size_t pulls = random() % 4; pulls > 0 && f.stream.next_frame(frame);
                 --pulls) {
                frames.push_back(json::parse(frame).as_object());
                frame.clear();
            }
        }
        f.finish(0);
        for (auto& frame : f.frames())
            frames.push_back(std::move(frame));
        std::string joined;
        std::string whole;
        for (const auto& frame : frames) {
            if (frame.at("type") == "response.output_text.delta")
                joined += frame.at("delta").as_string();
            if (frame.at("type") == "response.output_text.done")
                whole = frame.at("text").as_string();
        }
        REQUIRE(joined == whole);
        REQUIRE(whole == text.substr(0, text.find("stopstop")));
    }
}

TEST_CASE("Escaped strings read back as they were", "[gateway][wire][json]") {
    std::string all;
    for (int byte = 0; byte < 128; ++byte)
        all += static_cast<char>(byte);
    all += "\xE2\x80\xA8\xF0\x9F\x98\x8A";
    std::string text;
    append_json_string(text, all);
    CHECK(json::parse(text).as_string() == all);
    for (std::size_t size = 1; size < 20; ++size) {  // eight bytes are looked at together
        for (std::size_t at = 0; at < size; ++at) {
            for (int byte = 0; byte < 128; ++byte) {
                std::string one(size, '!');
                one[at] = static_cast<char>(byte);
                text.clear();
                append_json_string(text, one);
                const bool escaped = byte < 0x20 || byte == '"' || byte == '\\';
                REQUIRE(json::parse(text).as_string() == one);
                REQUIRE((text.size() == size + 2) == !escaped);
            }
        }
    }
}
