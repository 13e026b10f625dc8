// Responses and their readers: several at once, ones that come back, none at all, and the storage
// that answers late.
#include "actors/live_responses.hpp"

#include <catch2/catch.hpp>

#include "tests/actors/test_session_support.hpp"

using namespace troupe;
using namespace troupe::actors;
using troupe::test::LiveScript;
using troupe::test::SessionScript;

namespace {

runtime::TimePoint at(std::int64_t seconds) {
    return runtime::TimePoint(std::chrono::seconds(seconds));
}

ResumeRequest resume_after(std::int64_t sequence, std::string id = "resp_1") {
    ResumeRequest request;
    request.response_id = std::move(id);
    request.next_sequence = static_cast<std::uint64_t>(sequence + 1);
    return request;
}

struct Numbered {
    std::string story;
    std::vector<std::uint64_t> numbers;
};

Numbered read(SessionScript& script) {
    Numbered out;
    for (const auto& event : script.pull()) {
        out.story += (out.story.empty() ? "" : " ") + test::story_word(event);
        out.numbers.push_back(event.sequence_number);
    }
    return out;
}

}  // namespace

TEST_CASE("A reader that comes back gets what it has missed, under the same numbers",
          "[actors][live][resume]") {
    LiveScript live;
    SessionScript first(live, 1);
    first.create(SessionScript::request("hi"));
    live.tokens(1, "ab");
    CHECK(first.story() == "created in_progress item+ part+ delta(ab)");
    first.session.disconnect();
    live.tokens(1, "cd");
    SessionScript second(live, 2);
    second.session.resume(resume_after(1));
    auto told = read(second);
    CHECK(told.story == "item+ part+ delta(ab) delta(cd)");
    CHECK(told.numbers == std::vector<std::uint64_t>{2, 3, 4, 5});
    live.finish(1);
    told = read(second);
    CHECK(told.story == "text(abcd) part item completed");
    CHECK(told.numbers == std::vector<std::uint64_t>{6, 7, 8, 9});
    CHECK(second.session.idle());
    CHECK(live.cancels.empty());
}

TEST_CASE("A response is read before its first token, and by several at once",
          "[actors][live][resume]") {
    LiveScript live;
    SessionScript first(live, 1);
    SessionScript second(live, 2);
    first.create(SessionScript::request("hi"));
    second.session.resume(resume_after(-1));
    CHECK(second.story() == "created");
    CHECK(first.story() == "created");
    live.tokens(1, "a");
    CHECK(first.story() == "in_progress item+ part+ delta(a)");
    live.tokens(1, "b");
    CHECK(second.story() == "in_progress item+ part+ delta(a) delta(b)");
    CHECK(std::count(live.touched.begin(), live.touched.end(), 2U) == 2);
    first.session.disconnect();
    live.finish(1);
    CHECK(second.story() == "text(ab) part item completed");
}

TEST_CASE("A snapshot stands for all that was told, and the rest follows",
          "[actors][live][resume]") {
    LiveScript live;
    SessionScript first(live, 1);
    first.create(SessionScript::request("hi"));
    live.tokens(1, "ab");
    (void)first.pull();
    live.tokens(1, "cd");
    SessionScript second(live, 2);
    auto request = resume_after(-1);
    request.snapshot = true;
    request.stream_id = "again";
    second.session.resume(request);
    auto told = read(second);
    CHECK(told.story == "again:in_progress(ab) again:delta(cd)");
    CHECK(told.numbers == std::vector<std::uint64_t>{4, 5});
    SECTION("of one at work") {
        live.finish(1);
        CHECK(read(second).numbers == std::vector<std::uint64_t>{6, 7, 8, 9});
    }
    SECTION("of one that has ended") {
        live.finish(1);
        SessionScript third(live, 3);
        third.session.resume(request);
        told = read(third);
        CHECK(told.story == "again:in_progress(abcd) again:completed");
        CHECK(told.numbers == std::vector<std::uint64_t>{8, 9});
    }
}

TEST_CASE("What cannot be resumed is an error of the lane", "[actors][live][resume]") {
    LiveScript live;
    SessionScript first(live, 1);
    first.create(SessionScript::request("hi"));
    (void)first.pull();
    SessionScript stranger(live, 2, 8);
    SessionScript second(live, 3);
    stranger.session.resume(resume_after(0));
    stranger.perform();
    CHECK(stranger.story() == "error(response_not_found)");
    second.session.resume(resume_after(1));
    CHECK(second.story() == "error(invalid_parameter)");  // there is no event 1 yet
    CHECK(second.session.idle());
}

TEST_CASE("Who has seen all of a response is told its end once more", "[actors][live][resume]") {
    LiveScript live;
    SessionScript first(live, 1);
    first.create(SessionScript::request("hi"));
    live.finish(1);
    const auto last = first.pull().back().sequence_number;
    SessionScript second(live, 2);
    second.session.resume(resume_after(static_cast<std::int64_t>(last)));
    CHECK(second.story() == "completed");
    CHECK(second.session.idle());
}

TEST_CASE("A response that is only kept is resumed by its terminal event",
          "[actors][live][resume]") {
    LiveScript live({.replays_max = 0});
    SessionScript first(live, 1);
    first.create(SessionScript::request("hi"));
    live.tokens(1, "x");
    live.finish(1);
    (void)first.pull();
    live.live.tick(at(1));
    CHECK(live.live.size() == 0);
    SessionScript second(live, 2);
    second.session.resume(resume_after(3));
    second.perform();
    const auto told = read(second);
    CHECK(told.story == "stored_completed");
    CHECK(told.numbers == std::vector<std::uint64_t>{8});
    CHECK(second.session.idle());
}

TEST_CASE("A response that is to be kept goes on without a reader for its grace",
          "[actors][live][disconnect]") {
    LiveScript live;
    SessionScript first(live, 1);
    first.create(SessionScript::request("hi"));
    live.tokens(1, "x");
    (void)first.pull();
    first.session.disconnect();
    live.live.tick(at(100));
    live.live.tick(at(114));
    CHECK(live.cancels.empty());
    SECTION("then it is cancelled, and kept as far as it came") {
        live.live.tick(at(115));
        CHECK(live.cancels == std::vector<RequestId>{1});
        CHECK(live.submits[0].stop->reason() == runtime::StopReason::disconnected);
        live.finish(1, FinishReason::cancelled);
        REQUIRE(live.store.find("resp_1", 7) != nullptr);
        CHECK(live.store.find("resp_1", 7)->turn->answer == "x");
    }
    SECTION("unless a reader comes back") {
        SessionScript second(live, 2);
        second.session.resume(resume_after(0));
        live.live.tick(at(115));
        CHECK(live.cancels.empty());
        second.session.disconnect();
        live.live.tick(at(116));
        live.live.tick(at(130));
        CHECK(live.cancels.empty());
        live.live.tick(at(131));
        CHECK(live.cancels.size() == 1);
    }
    SECTION("or it ends") {
        live.finish(1);
        live.live.tick(at(200));
        CHECK(live.cancels.empty());
        CHECK(live.live.find("resp_1", 7) != nullptr);
        live.live.tick(at(499));
        CHECK(live.live.find("resp_1", 7) != nullptr);
        live.live.tick(at(500));
        CHECK(live.live.find("resp_1", 7) == nullptr);
    }
}

TEST_CASE("background goes on to its end", "[actors][live][disconnect]") {
    LiveScript live;
    SessionScript first(live, 1);
    auto create = SessionScript::request("hi");
    create.background = true;
    first.create(std::move(create));
    first.session.disconnect();
    live.live.tick(at(0));
    live.live.tick(at(100000));
    CHECK(live.cancels.empty());
}

TEST_CASE("One principal has so many responses without a reader", "[actors][live][disconnect]") {
    LiveScript live({.alone_max = 2});
    SessionScript first(live, 1);
    for (const char* lane : {"a", "b", "c"})
        first.create(SessionScript::request("hi", lane));
    SessionScript other(live, 2, 8);
    other.create(SessionScript::request("hi"));
    other.session.disconnect();
    first.session.disconnect();
    CHECK(live.cancels.size() == 1);
}

TEST_CASE("A cancel works for any reader of the same principal", "[actors][live][cancel]") {
    LiveScript live;
    SessionScript first(live, 1);
    first.create(SessionScript::request("hi"));
    SessionScript second(live, 2);
    second.session.cancel({.response_id = "resp_1", .stream_id = {}, .event_id = {}});
    CHECK(live.cancels == std::vector<RequestId>{1});
    SessionScript stranger(live, 3, 8);
    stranger.session.cancel({.response_id = "resp_1", .stream_id = {}, .event_id = {}});
    stranger.perform();
    CHECK(stranger.story() == "error(response_not_found)");
}

TEST_CASE("The terminal event waits until the response is safe", "[actors][live][store]") {
    LiveScript live;
    live.keeping = Keeping::pending;
    SessionScript first(live, 1);
    first.create(SessionScript::request("hi"));
    live.tokens(1, "x");
    live.finish(1);
    CHECK(first.story() == "created in_progress item+ part+ delta(x) text(x) part item");
    const auto response = live.live.find("resp_1", 7);
    CHECK(response->log.current().status == ResponseStatus::in_progress);
    std::vector<SessionId> touched;
    SECTION("which it then says") {
        live.live.kept("resp_1", true, touched);
        CHECK(touched == std::vector<SessionId>{1});
        const auto events = first.pull();
        REQUIRE(events.size() == 1);
        const auto& end = std::get<ResponseChanged>(events[0].body);
        CHECK(end.response.settings->store);
    }
    SECTION("or that it is not") {
        live.live.kept("resp_1", false, touched);
        const auto events = first.pull();
        REQUIRE(events.size() == 1);
        const auto& end = std::get<ResponseChanged>(events[0].body);
        CHECK(end.kind == ResponseChanged::Kind::completed);
        CHECK_FALSE(end.response.settings->store);
    }
}

TEST_CASE("A response that is deleted while it is at work is cancelled and not kept",
          "[actors][live][store]") {
    LiveScript live;
    SessionScript first(live, 1);
    first.create(SessionScript::request("hi"));
    live.tokens(1, "x");
    const auto response = live.live.find("resp_1", 7);
    live.live.forget(*response);
    CHECK(live.cancels == std::vector<RequestId>{1});
    CHECK(live.live.find("resp_1", 7) == nullptr);
    live.finish(1, FinishReason::cancelled);
    CHECK(live.store.size() == 0);
    CHECK(first.story() ==
          "created in_progress item+ part+ delta(x) text(x) part item(incomplete) "
          "incomplete(cancelled)");
}
