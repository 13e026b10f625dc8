// What clients send: JSON, parameters, messages, events; well-formed, odd and hostile.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gateway/wire_client_event.hpp"
#include "gateway/wire_completion.hpp"
#include "gateway/wire_messages.hpp"
#include "gateway/wire_params.hpp"
#include "tests/gateway/test_wire_support.hpp"
#include "tests/support/paths.hpp"

using namespace troupe;
using namespace troupe::gateway;
using troupe::test::json_string;
using troupe::test::ServedFixture;

namespace {

bool parses(std::string_view text, std::size_t depth_max = 64) {
    return with_json(text, depth_max, [](const JsonElement&) -> WireResult<> { return {}; })
        .has_value();
}

// The parameters of a create with these fields, or the error.
WireResult<WireCreate> create(const ServedFixture& f, const std::string& fields) {
    return read_create_body(R"({"input":"hi")" + (fields.empty() ? "" : "," + fields) + "}",
                            f.served);
}

std::string refusal(const ServedFixture& f, const std::string& fields) {
    const auto read = create(f, fields);
    if (read) return "accepted";
    CHECK(read.error().status == 400);
    return read.error().param + ": " + read.error().message;
}

std::string nested(std::size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
}

}  // namespace

TEST_CASE("The JSON test suite is accepted and refused as it says", "[gateway][wire][json]") {
    const std::string folder = "6-torture/JSONTestSuite/test_parsing";
    if (!test::have_shared(folder)) return;
    int checked = 0;
    for (const auto& entry : std::filesystem::directory_iterator(test::shared_data(folder))) {
        const std::string name = entry.path().filename();
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        INFO(name);
        const bool accepted = parses(text);
        if (name.starts_with("y_")) CHECK(accepted);
        if (name.starts_with("n_")) CHECK_FALSE(accepted);
        ++checked;
    }
    CHECK(checked > 250);
}

TEST_CASE("Nesting is limited everywhere", "[gateway][wire][json]") {
    const ServedFixture f;
    CHECK(parses(nested(63)));
    CHECK_FALSE(parses(nested(65)));
    CHECK_FALSE(parses(nested(3000)));
    CHECK_FALSE(parses(nested(100'000)));
    const auto deep = create(f, R"("nobody_reads_this":)" + nested(10'000));
    REQUIRE_FALSE(deep.has_value());
    CHECK(deep.error().code == "invalid_json");
    CHECK(parses("[]"));  // the parser that saw all that is fine
}

TEST_CASE("Strings keep every code point; lone surrogates and bad UTF-8 are refused",
          "[gateway][wire][json]") {
    const ServedFixture f;
    const auto read = create(f, R"("instructions":"a\u0000b\ud83d\ude0a")");
    REQUIRE(read.has_value());
    CHECK(*read->request.instructions == std::string("a\0b\xF0\x9F\x98\x8A", 7));
    CHECK_FALSE(create(f, R"("instructions":"\ud83d")").has_value());
    CHECK_FALSE(create(f, R"("x":"\udc00 alone")").has_value());
    CHECK_FALSE(create(f, "\"x\":\"\xC0\xAF\"").has_value());
    CHECK_FALSE(create(f, R"("x":1e999)").has_value());
}

TEST_CASE("The last of duplicate keys counts", "[gateway][wire][json]") {
    const ServedFixture f;
    const auto read = create(f, R"("temperature":0.1,"temperature":0.7)");
    REQUIRE(read.has_value());
    CHECK(read->request.params.temperature == 0.7);
}

TEST_CASE("Parameters have defaults, ranges and names", "[gateway][wire][params]") {
    const ServedFixture f;
    const auto plain = create(f, "");
    REQUIRE(plain.has_value());
    CHECK(plain->request.params == f.served.defaults);
    CHECK_FALSE(plain->seed_given);
    const auto nulls = create(f, R"("temperature":null,"stop":null,"seed":null,"top_k":null,)"
                                 R"("max_output_tokens":null,"logit_bias":null,"model":null)");
    REQUIRE(nulls.has_value());
    CHECK(nulls->request.params == f.served.defaults);

    CHECK(refusal(f, R"("temperature":2.5)") ==
          "temperature: temperature is 2.5, but must be a number between 0 and 2.");
    CHECK(refusal(f, R"("temperature":"hot")") ==
          "temperature: temperature is \"hot\", but must be a number between 0 and 2.");
    CHECK(refusal(f, R"("typical_p":0)") ==
          "typical_p: typical_p is 0, but must be a number above 0 and at most 1.");
    CHECK(refusal(f, R"("repetition_penalty":0)") ==
          "repetition_penalty: repetition_penalty is 0, but must be a number above 0.");
    CHECK(refusal(f, R"("top_k":1.0)") ==
          "top_k: top_k is 1.0, but must be an integer of -1 or more.");
    CHECK(refusal(f, R"("seed":18446744073709551615)").starts_with("seed: "));
    for (const char* bad : {R"("top_p":-0.1)",
                            R"("top_p":true)",
                            R"("min_p":1.1)",
                            R"("frequency_penalty":3)",
                            R"("presence_penalty":-2.1)",
                            R"("max_output_tokens":-1)",
                            R"("max_output_tokens":1e3)",
                            R"("min_tokens":-1)",
                            R"("ignore_eos":1)",
                            R"("stop":[""])",
                            R"("stop":"")",
                            R"("stop":[1])",
                            R"("stop":{})",
                            R"("stop_token_ids":[257])",
                            R"("stop_token_ids":[-1])",
                            R"("logit_bias":{"257":1})",
                            R"("logit_bias":{"x":1})",
                            R"("logit_bias":{"1":101})",
                            R"("logit_bias":[])",
                            R"("top_logprobs":21)",
                            R"("logprobs_mode":"new")",
                            R"("samplers":["top_k","top_k"])",
                            R"("samplers":["magic"])",
                            R"("samplers":"top_k")",
                            R"("n":0)",
                            R"("n":10000000)",
                            R"("n":2)",
                            R"("best_of":5)",
                            R"("beam_width":0)",
                            R"("beam_width":17)",
                            R"("beam_width":"2")",
                            R"("beam_width":2,"temperature":0.5)",
                            R"("beam_width":2,"logit_bias":{"1":1})",
                            R"("beam_width":2,"top_logprobs":1)",
                            R"("beam_width":2,"best_of":2)",
                            R"("length_penalty":11)",
                            R"("stream":"yes")",
                            R"("truncation":"middle")",
                            R"("truncation":true)",
                            R"("deadline_ms":0)",
                            R"("deadline_ms":86400001)",
                            R"("deadline_ms":1.5)",
                            R"("background":true,"store":false)",
                            R"("text":{"format":{"type":"json_object"}})",
                            R"("metadata":[])",
                            R"("tools":{})"}) {
        INFO(bad);
        CHECK(refusal(f, bad) != "accepted");
    }
}

TEST_CASE("Edges of ranges are allowed", "[gateway][wire][params]") {
    const ServedFixture f;
    for (const char* good : {R"("temperature":0)",
                             R"("temperature":2)",
                             R"("temperature":1e-8)",
                             R"("top_p":0)",
                             R"("top_p":1)",
                             R"("top_k":-1)",
                             R"("top_k":0)",
                             R"("top_k":2000000000000)",
                             R"("max_output_tokens":0)",
                             R"("seed":0)",
                             R"("seed":-9223372036854775808)",
                             R"("stop":[])",
                             R"("tools":[{"type":"from_the_future","x":[[]]}])",
                             R"("unknown":{})",
                             R"("stream":true)",
                             R"("background":false)",
                             R"("truncation":"disabled")",
                             R"("truncation":"auto")",
                             R"("deadline_ms":1)",
                             R"("deadline_ms":86400000)",
                             R"("deadline_ms":null)"}) {
        INFO(good);
        CHECK(refusal(f, good) == "accepted");
    }
    const auto huge = create(f, R"("max_output_tokens":9223372036854775807)");
    REQUIRE(huge.has_value());
    CHECK(huge->request.params.max_tokens == 2147483647);
    const auto zero = create(f, R"("seed":0)");
    REQUIRE(zero.has_value());
    CHECK(zero->seed_given);
}

TEST_CASE("The newest name of the token limit wins", "[gateway][wire][params]") {
    const ServedFixture f;
    const auto read =
        create(f, R"("max_tokens":1,"max_completion_tokens":2,"max_output_tokens":3)");
    REQUIRE(read.has_value());
    CHECK(read->request.params.max_tokens == 3);
    const auto older = create(f, R"("max_tokens":1,"max_completion_tokens":2)");
    REQUIRE(older.has_value());
    CHECK(older->request.params.max_tokens == 2);
}

TEST_CASE("A model has an id, aliases and a default name", "[gateway][wire]") {
    const ServedFixture f;
    for (const char* name : {"tiny", "pet", "default", ""})
        CHECK(create(f, R"("model":)" + json_string(name)).has_value());
    const auto other = create(f, R"("model":"gpt-9")");
    REQUIRE_FALSE(other.has_value());
    CHECK(other.error().status == 404);
    CHECK(other.error().code == "model_not_found");
}

TEST_CASE("Conversations come as strings, items and parts", "[gateway][wire][messages]") {
    const ServedFixture f;
    const auto read = read_create_body(
        R"({"input":[
            {"role":"developer","content":"be kind"},
            {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},
                                                       {"type":"text","text":"b"}]},
            {"type":"reasoning","id":"rs_1","summary":[]},
            {"type":"message","id":"msg_1","status":"completed","role":"assistant",
             "content":[{"type":"output_text","text":"c","annotations":[]}]}]})",
        f.served);
    REQUIRE(read.has_value());
    std::string text;
    for (const auto& message : read->request.input)
        text += message.role + "=" + message.content + ";";
    CHECK(text == "system=be kind;user=ab;assistant=c;");
    for (const char* bad :
         {R"({})", R"({"input":[]})", R"({"input":7})", R"({"input":["x"]})",
          R"({"input":[{"role":"user"}]})", R"({"input":[{"role":"root","content":"x"}]})",
          R"({"input":[{"role":"<|im_start|>","content":"x"}]})",
          R"({"input":[{"role":"user","content":[{"type":"input_image","image_url":"x"}]}]})",
          R"({"input":[{"role":"user","content":[{"type":"input_text"}]}]})",
          R"({"input":[{"type":"item_reference","id":"msg_1"}]})", R"([])", R"("x")"}) {
        INFO(bad);
        CHECK_FALSE(read_create_body(bad, f.served).has_value());
    }
    const auto image = read_create_body(
        R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})", f.served);
    CHECK(image.error().code == "unsupported_parameter");
    CHECK(image.error().message ==
          "input[0].content[0] has the type \"input_image\"; this model reads text only.");
}

TEST_CASE("An event's keys come in any order, with type last", "[gateway][wire][events]") {
    const ServedFixture f;
    const auto event = read_client_event(
        R"({"input":"hi","stream":true,"stream_id":"a.B-1_","client_metadata":{"x":1},)"
        R"("event_id":"e1","previous_response_id":"resp_1","generate":false,"store":false,)"
        R"("type":"response.create"})",
        f.served);
    const auto* read = std::get_if<WireCreate>(&event);
    REQUIRE(read != nullptr);
    CHECK(read->request.stream_id == "a.B-1_");
    CHECK(read->request.event_id == "e1");
    CHECK(read->request.previous_response_id == "resp_1");
    CHECK_FALSE(read->request.generate);
    CHECK_FALSE(read->request.store);
}

TEST_CASE("Messages that are no events are told apart from refused ones",
          "[gateway][wire][events]") {
    const ServedFixture f;
    const auto refused = [&](std::string_view text) {
        const auto event = read_client_event(text, f.served);
        const auto* message = std::get_if<RefusedMessage>(&event);
        if (message != nullptr) return message->error.code + (message->malformed ? "!" : "");
        const auto* create = std::get_if<RefusedCreate>(&event);
        return create != nullptr ? "create:" + create->error.code : "accepted";
    };
    CHECK(refused("") == "invalid_json!");
    CHECK(refused("{") == "invalid_json!");
    CHECK(refused("[]") == "invalid_json!");
    CHECK(refused("{}") == "unknown_event_type!");
    CHECK(refused(R"({"type":5})") == "invalid_parameter!");
    CHECK(refused(R"({"type":"response.make"})") == "unknown_event_type");
    CHECK(refused(R"({"type":"response.create","stream_id":""})") == "invalid_stream_id");
    CHECK(refused(R"({"type":"response.create","stream_id":"a b"})") == "invalid_stream_id");
    CHECK(refused(R"({"type":"response.create","stream_id":)" + json_string(std::string(257, 'a')) +
                  "}") == "invalid_stream_id");
    CHECK(refused(R"({"type":"response.create","stream_id":"a"})") == "create:invalid_parameter");
    CHECK(refused(R"({"type":"response.cancel","response_id":5})") == "invalid_parameter");
    CHECK(refused(R"({"type":"response.cancel"})") == "accepted");
    CHECK(refused(R"({"type":"response.steer"})") == "accepted");
    CHECK(refused(R"({"type":"troupe:ping","t":1.5})") == "accepted");
    CHECK(refused(R"({"type":"troupe:ping","t":)" + json_string(std::string(300, 'a')) + "}") ==
          "invalid_parameter");
}

TEST_CASE("Chat bodies are read", "[gateway][wire][chat]") {
    const ServedFixture f;
    const auto read = read_chat_body(
        R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,
            "tool_calls":[{"id":"c"}]},{"role":"tool","tool_call_id":"c","content":"4"}],
            "n":3,"stream":true,"stream_options":{"include_usage":true},"logprobs":true,
            "top_logprobs":2,"user":"me","response_format":{"type":"text"}})",
        f.served);
    REQUIRE(read.has_value());
    CHECK(read->answers == 3);
    CHECK(read->include_usage);
    CHECK(read->params.top_logprobs == 2);
    CHECK(read->messages[1].tool_calls_json == R"([{"id":"c"}])");
    CHECK(read->messages[2].tool_call_id == "c");
    for (
        const char* bad :
        {R"({})", R"({"messages":[]})", R"({"messages":"hi"})", R"({"messages":[{}]})",
         R"({"messages":[{"role":"user","content":"x"}],"top_logprobs":2})",
         R"({"messages":[{"role":"user","content":"x"}],"n":129})",
         R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_object"}})",
         R"({"messages":[{"role":"user","content":"x"}],"stream_options":5})",
         R"({"messages":[{"role":"user","content":"x"}],
             "stream_options":{"continuous_usage_stats":{}}})"}) {
        INFO(bad);
        CHECK_FALSE(read_chat_body(bad, f.served).has_value());
    }
}

TEST_CASE("Completion prompts come in four forms", "[gateway][wire][completions]") {
    const ServedFixture f;
    const auto count = [&](const std::string& prompt) -> int {
        const auto read = read_completion_body(R"({"prompt":)" + prompt + "}", f.served);
        return read ? static_cast<int>(read->prompts.size()) : -1;
    };
    CHECK(count(R"("hi")") == 1);
    CHECK(count(R"(["a","b"])") == 2);
    CHECK(count(R"([1,2,3])") == 1);
    CHECK(count(R"([[1],[2,3]])") == 2);
    CHECK(count(R"([])") == -1);
    CHECK(count(R"([257])") == -1);
    CHECK(count(R"([1.5])") == -1);
    CHECK(count(R"({})") == -1);
    CHECK(count("null") == -1);
    std::string many = "[\"a\"";
    for (int i = 0; i < 64; ++i)
        many += ",\"a\"";
    CHECK(count(many + "]") == -1);
    CHECK_FALSE(read_completion_body(R"({"prompt":["a","b"],"n":100})", f.served).has_value());
    CHECK(read_completion_body(R"({"prompt":"a","echo":true,"logprobs":1})", f.served)
              ->scores_prompts());
    CHECK_FALSE(read_completion_body(R"({"prompt":"a","suffix":"b"})", f.served).has_value());
    CHECK(read_completion_body(R"({"prompt":"a","echo":true,"logprobs":null})", f.served)
              .has_value());
}
