// The core of a Responses connection, told as scripts: who asks what, and the story the client
// reads.
#include "actors/session.hpp"

#include <catch2/catch.hpp>

#include "tests/actors/test_session_support.hpp"

using namespace troupe;
using namespace troupe::actors;
using troupe::test::SessionScript;
using troupe::test::story_word;

namespace {

const char* const kBefore = "created in_progress item+ part+ ";

std::string whole(const std::string& text) {
    return kBefore + ("delta(" + text + ") text(" + text + ") part item completed");
}

std::string id_of(SessionScript& script, std::uint64_t request) {
    (void)script;
    return "resp_" + std::to_string(request);
}

}  // namespace

TEST_CASE("A response is told in the order of the protocol", "[actors][session]") {
    SessionScript script;
    script.create(SessionScript::request("hi"));
    CHECK(script.prompts == std::vector<std::string>{"user=hi;"});
    REQUIRE(script.submits.size() == 1);
    CHECK(script.story() == "created");
    script.tokens(1, "Hel");
    CHECK(script.story() == "in_progress item+ part+ delta(Hel)");
    script.tokens(1, "lo");
    CHECK(script.story() == "delta(lo)");
    script.finish(1);
    CHECK(script.story() == "text(Hello) part item completed");
    CHECK(script.session.idle());
}

TEST_CASE("Sequence numbers count up by one in each response", "[actors][session]") {
    SessionScript script;
    for (int round = 0; round < 2; ++round) {
        script.create(SessionScript::request("hi"));
        const auto request = script.submits.back().request;
        script.tokens(request, "a");
        script.finish(request);
        std::uint64_t expected = 0;
        for (const auto& event : script.pull())
            CHECK(event.sequence_number == expected++);
        CHECK(expected == 9);
    }
}

TEST_CASE("All text that waits becomes one delta", "[actors][session]") {
    SessionScript script;
    script.create(SessionScript::request("hi"));
    for (const char* piece : {"a", "b", "cd"})
        script.tokens(1, piece);
    CHECK(script.session.pending_bytes() == 4);
    script.finish(1);
    CHECK(script.story() == whole("abcd"));
    CHECK(script.session.pending_bytes() == 0);
}

TEST_CASE("A very long delta is cut at a code point", "[actors][session]") {
    SessionScript script;
    script.create(SessionScript::request("hi"));
    std::string text = "x";
    for (int i = 0; i < 20000; ++i)
        text += "\xC3\xA9";
    script.tokens(1, text);
    script.finish(1);
    std::string joined;
    std::size_t longest = 0;
    for (const auto& event : script.pull()) {
        const auto* delta = std::get_if<TextDelta>(&event.body);
        if (delta == nullptr) continue;
        CHECK((static_cast<unsigned char>(delta->delta[0]) & 0xC0U) != 0x80U);
        longest = std::max(longest, delta->delta.size());
        joined += delta->delta;
    }
    CHECK(joined == text);
    CHECK(longest <= 32768);
}

TEST_CASE("Waiting and prefill are told while they last", "[actors][session]") {
    SessionScript script;
    script.create(SessionScript::request("hi"));
    script.deliver(Queued{1, 1, 5});
    CHECK(script.story() == "created queued(5)");
    script.deliver(Queued{1, 1, 4});
    script.deliver(Queued{1, 1, 2});
    CHECK(script.story() == "queued(2)");
    script.deliver(PromptProgress{1, 1, 100, 300, 0});
    CHECK(script.story() == "in_progress(100)");
    script.deliver(PromptProgress{1, 1, 200, 300, 0});
    CHECK(script.story() == "in_progress(200)");
    script.tokens(1, "x");
    script.finish(1);
    CHECK(script.story() == "item+ part+ delta(x) text(x) part item completed");
}

TEST_CASE("Every way to end has one terminal event", "[actors][session]") {
    SessionScript script;
    script.create(SessionScript::request("hi"));
    script.tokens(1, "x");
    SECTION("length") {
        script.finish(1, FinishReason::length);
        CHECK(script.story() ==
              std::string(kBefore) + "delta(x) text(x) part item(incomplete) incomplete");
    }
    SECTION("cancelled") {
        script.finish(1, FinishReason::cancelled);
        CHECK(script.story() == std::string(kBefore) +
                                    "delta(x) text(x) part item(incomplete) incomplete(cancelled)");
    }
    SECTION("error") {
        script.finish(1, FinishReason::error);
        CHECK(script.story() == std::string(kBefore) +
                                    "delta(x) text(x) part item(incomplete) error(server_error) "
                                    "failed");
    }
    SECTION("shutdown") {
        script.finish(1, FinishReason::shutdown);
        CHECK(script.story() == std::string(kBefore) +
                                    "delta(x) text(x) part item(incomplete) error(overloaded) "
                                    "failed");
    }
    script.finish(1);  // a second end is ignored
    CHECK(script.story().empty());
    CHECK(script.session.idle());
}

TEST_CASE("An answer of no words has a message when it ended well, none when it was cut short",
          "[actors][session]") {
    SessionScript script;
    script.create(SessionScript::request("hi"));
    SECTION("stopped at once") {
        script.finish(1, FinishReason::stop);
        CHECK(script.story() == std::string(kBefore) + "text() part item completed");
    }
    SECTION("cancelled before the first token") {
        script.finish(1, FinishReason::cancelled);
        CHECK(script.story() == "created in_progress incomplete(cancelled)");
    }
}

TEST_CASE("A request that is not accepted fails after created", "[actors][session]") {
    SessionScript script;
    script.create(SessionScript::request("hi"));
    script.deliver(Rejected{1, 1, Rejected::Reason::overloaded, "full", 2000});
    CHECK(script.story() == "created in_progress error(rate_limit_exceeded) failed");
}

TEST_CASE("What is wrong before created is only an error", "[actors][session]") {
    SessionScript script;
    script.create(SessionScript::request("too long"));
    CHECK(script.story() == "error(context_length_exceeded)");
    CHECK(script.submits.empty());
    CHECK(script.session.idle());
}

TEST_CASE("generate: false warms the prefix and gives an id to continue from",
          "[actors][session]") {
    SessionScript script;
    auto warm = SessionScript::request("hi");
    warm.generate = false;
    script.create(std::move(warm));
    REQUIRE(script.submits.size() == 1);
    CHECK(script.submits[0].prefill_only);
    script.finish(1, FinishReason::length);
    CHECK(script.story() == "created in_progress completed");
    auto next = SessionScript::request("and?");
    next.previous_response_id = id_of(script, 1);
    script.create(std::move(next));
    CHECK(script.prompts.back() == "user=hi;user=and?;");
}

TEST_CASE("A lane is first in, first out", "[actors][session][lanes]") {
    SessionScript script;
    script.create(SessionScript::request("one"));
    script.create(SessionScript::request("two"));
    CHECK(script.submits.size() == 1);
    CHECK(script.session.queued() == 1);
    script.tokens(1, "a");
    script.finish(1);
    CHECK(script.submits.size() == 1);  // not before the first has been told
    CHECK(script.story() == whole("a") + " created");
    CHECK(script.submits.size() == 2);
    script.tokens(2, "b");
    script.finish(2);
    CHECK(script.story() == "in_progress item+ part+ delta(b) text(b) part item completed");
}

TEST_CASE("Two lanes take turns", "[actors][session][lanes]") {
    SessionScript script;
    script.create(SessionScript::request("one", "a"));
    script.create(SessionScript::request("two", "b"));
    CHECK(script.story() == "a:created b:created");
    script.tokens(1, "x");
    script.tokens(2, "y");
    CHECK(script.story() ==
          "a:in_progress b:in_progress a:item+ b:item+ a:part+ b:part+ a:delta(x) b:delta(y)");
}

TEST_CASE("A create that was refused is told in the order of its lane",
          "[actors][session][lanes]") {
    SessionScript script;
    const RequestError error{
        .status = 400, .code = "invalid_parameter", .message = "", .param = {}};
    script.session.refuse_create("a", "", error);
    CHECK(script.story() == "a:error(invalid_parameter)");
    script.create(SessionScript::request("one", "a"));
    script.session.refuse_create("a", "", error);
    script.session.refuse_create("b", "", error);
    CHECK(script.story() == "b:error(invalid_parameter) a:created");
    script.finish(1, FinishReason::cancelled);
    CHECK(script.story() == "a:in_progress a:incomplete(cancelled) a:error(invalid_parameter)");
}

TEST_CASE("A connection has so many in flight, queued and named", "[actors][session][lanes]") {
    SessionScript script({.in_flight_max = 2, .named_lanes_max = 3, .queued_max = 2});
    script.create(SessionScript::request("1", "a"));
    script.create(SessionScript::request("2", "b"));
    script.create(SessionScript::request("3", "c"));
    script.create(SessionScript::request("4", "a"));
    CHECK(script.submits.size() == 2);
    CHECK(script.session.queued() == 2);
    script.create(SessionScript::request("5", "b"));
    script.create(SessionScript::request("6", "d"));
    CHECK(script.story() ==
          "b:error(websocket_queue_full) d:error(websocket_queue_full) a:created b:created");
    script.finish(2, FinishReason::cancelled);
    CHECK(script.story() == "b:in_progress b:incomplete(cancelled) c:created");
    CHECK(script.session.in_flight() == 2);
    script.create(SessionScript::request("7", "d"));  // b is idle now and makes room
    CHECK(script.story().empty());
    CHECK(script.session.queued() == 2);
}

TEST_CASE("A chain carries what was said, but not the instructions", "[actors][session][chain]") {
    SessionScript script;
    auto first = SessionScript::request("one");
    first.instructions = "be brief";
    script.create(std::move(first));
    CHECK(script.prompts.back() == "system=be brief;user=one;");
    script.tokens(1, "A");
    script.finish(1);
    (void)script.pull();
    auto second = SessionScript::request("two");
    second.previous_response_id = id_of(script, 1);
    script.create(std::move(second));
    CHECK(script.prompts.back() == "user=one;assistant=A;user=two;");
    script.tokens(2, "B");
    script.finish(2, FinishReason::cancelled);
    (void)script.pull();
    auto third = SessionScript::request("three");
    third.previous_response_id = id_of(script, 2);
    script.create(std::move(third));
    CHECK(script.prompts.back() == "user=one;assistant=A;user=two;assistant=B;user=three;");
}

TEST_CASE("store: false is continued on the same connection only", "[actors][session][chain]") {
    SessionScript script;
    for (const bool store : {false, true}) {
        auto first = SessionScript::request("one", store ? "kept" : "lost");
        first.store = store;
        script.create(std::move(first));
        script.finish(script.submits.back().request);
    }
    (void)script.pull();
    CHECK(script.store.size() == 1);
    auto here = SessionScript::request("two");
    here.previous_response_id = id_of(script, 1);
    script.create(std::move(here));
    CHECK(script.story() == "created");

    SessionScript later(script.hub, 2);
    SessionScript stranger(script.hub, 3, 8);
    const auto answer_to = [](SessionScript& client, const std::string& id) {
        auto again = SessionScript::request("two");
        again.previous_response_id = id;
        client.create(std::move(again));
        return client.story();
    };
    CHECK(answer_to(later, id_of(script, 1)) == "error(previous_response_not_found)");
    CHECK(answer_to(later, id_of(script, 2)) == "created");
    CHECK(answer_to(stranger, id_of(script, 2)) == "error(previous_response_not_found)");
    CHECK(stranger.session.idle());
}

TEST_CASE("A failed continuation forgets the id that it continued", "[actors][session][chain]") {
    SessionScript script;
    auto first = SessionScript::request("one");
    first.store = false;
    script.create(std::move(first));
    script.finish(1);
    (void)script.pull();
    auto second = SessionScript::request("two");
    second.store = false;
    second.previous_response_id = id_of(script, 1);
    script.create(second);
    script.finish(2, FinishReason::error);
    (void)script.pull();
    script.create(second);
    CHECK(script.story() == "error(previous_response_not_found)");
}

TEST_CASE("A response is cancelled by its id, its lane, or as the default lane's",
          "[actors][session][cancel]") {
    SessionScript script;
    script.create(SessionScript::request("one"));
    script.create(SessionScript::request("two", "a"));
    (void)script.pull();
    SECTION("id") {
        script.session.cancel({.response_id = "resp_2", .stream_id = {}, .event_id = {}});
        script.perform();
        CHECK(script.cancels == std::vector<RequestId>{2});
    }
    SECTION("lane") {
        script.session.cancel({.response_id = {}, .stream_id = "a", .event_id = {}});
        script.perform();
        CHECK(script.cancels == std::vector<RequestId>{2});
    }
    SECTION("default lane, twice") {
        script.session.cancel({});
        script.session.cancel({});
        script.perform();
        CHECK(script.cancels == std::vector<RequestId>{1});
        CHECK(script.submits[0].stop->reason() == runtime::StopReason::cancelled);
    }
    CHECK(script.story().empty());  // the scheduler decides the end
}

TEST_CASE("Cancelling what is unknown is an error, what has ended is not",
          "[actors][session][cancel]") {
    SessionScript script;
    script.session.cancel({});
    CHECK(script.story().empty());
    script.session.cancel({.response_id = "resp_9", .stream_id = {}, .event_id = "e"});
    script.perform();
    script.session.cancel({.response_id = {}, .stream_id = "a", .event_id = {}});
    CHECK(script.story() == "error(response_not_found) a:error(response_not_found)");
    auto create = SessionScript::request("one", "a");
    create.store = false;
    script.create(std::move(create));
    script.finish(1);
    script.session.cancel({.response_id = "resp_1", .stream_id = {}, .event_id = {}});
    (void)script.pull();
    script.session.cancel({.response_id = "resp_1", .stream_id = {}, .event_id = {}});
    script.session.cancel({.response_id = {}, .stream_id = "a", .event_id = {}});
    CHECK(script.story().empty());
    script.perform();
    CHECK(script.cancels.empty());
}

TEST_CASE("A create is cancelled while its prompt is being made, or while it is queued",
          "[actors][session][cancel]") {
    SessionScript script({.in_flight_max = 1});
    script.hold_prompts = true;
    script.create(SessionScript::request("one", "a"));
    script.create(SessionScript::request("two", "b"));
    script.session.cancel({.response_id = {}, .stream_id = "a", .event_id = {}});
    script.session.cancel({.response_id = {}, .stream_id = "b", .event_id = {}});
    script.release_prompts();
    CHECK(script.story() ==
          "a:created a:in_progress a:incomplete(cancelled) b:created b:in_progress "
          "b:incomplete(cancelled)");
    CHECK(script.submits.empty());
    CHECK(script.cancels.empty());
    CHECK(script.session.idle());
}

TEST_CASE("A client that goes away cancels what nobody wished kept, in every state",
          "[actors][session][disconnect]") {
    SessionScript script({.in_flight_max = 3});
    const auto unstored = [](const char* text, std::optional<std::string> lane = std::nullopt) {
        auto create = SessionScript::request(text, std::move(lane));
        create.store = false;
        return create;
    };
    script.create(unstored("running"));
    script.create(unstored("queued"));
    script.create(unstored("running too", "a"));
    script.hold_prompts = true;
    script.create(unstored("being made", "b"));
    script.tokens(1, "x");
    script.session.disconnect();
    script.session.disconnect();
    script.perform();
    CHECK(script.cancels == std::vector<RequestId>{1, 2});
    CHECK(script.submits[0].stop->reason() == runtime::StopReason::disconnected);
    script.release_prompts();
    CHECK(script.submits.size() == 2);
    script.finish(1, FinishReason::cancelled);  // late news of what is gone
    script.tokens(2, "y");
    CHECK(script.story().empty());
    CHECK(script.session.idle());
    CHECK(script.session.pending_bytes() == 0);
}

TEST_CASE("Pings and errors overtake data", "[actors][session]") {
    SessionScript script;
    script.create(SessionScript::request("hi"));
    script.tokens(1, "x");
    script.session.ping("17");
    script.session.steer(std::nullopt, "resp_1", "e");
    CHECK(script.story() == std::string("pong(17) steer_failed ") + kBefore + "delta(x)");
}

TEST_CASE("A draining session ends what runs and refuses what is new", "[actors][session]") {
    SessionScript script;
    script.create(SessionScript::request("one"));
    script.create(SessionScript::request("two"));
    script.session.drain();
    script.perform();
    script.create(SessionScript::request("three", "a"));
    CHECK(script.story() == "a:error(overloaded) created");
    script.tokens(1, "x");
    script.finish(1);
    CHECK(script.story() ==
          "in_progress item+ part+ delta(x) text(x) part item completed error(overloaded)");
    CHECK(script.session.idle());
}
