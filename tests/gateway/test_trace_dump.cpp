// /debug/trace: what lanes have noted, as Chrome's trace events.
#include "gateway/trace_dump.hpp"

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "actors/engine_trace.hpp"
#include "runtime/thread.hpp"

using namespace troupe;
using namespace troupe::gateway;
using namespace std::chrono_literals;
using actors::kRequestTrack;
using runtime::TimePoint;
using runtime::TraceEvent;
namespace json = boost::json;

namespace {

json::array trace_of(std::vector<TraceEvent> events, std::size_t at_once) {
    ChromeTrace trace(std::move(events));
    std::string text;
    while (trace.append(text, at_once)) {
    }
    return json::parse(text).at("traceEvents").as_array();
}

// Those of a phase ("X", "i", "b", …), by name.
std::vector<json::object> of_phase(const json::array& events, std::string_view phase) {
    std::vector<json::object> found;
    for (const json::value& event : events)
        if (event.at("ph").as_string() == phase) found.push_back(event.as_object());
    return found;
}

std::string_view name_of(const json::object& event) {
    const auto& name = event.at("name").as_string();
    return {name.data(), name.size()};
}

HttpReply ask(runtime::NamedThread& io, const std::vector<runtime::Lane*>& lanes,
              std::string_view query) {
    HttpReply reply;
    const auto asking = [&]() -> boost::asio::awaitable<void> {
        reply = co_await trace_reply(io, lanes, query);
    };
    io.spawn("asking", asking());
    io.finish();
    io.run();
    return reply;
}

}  // namespace

TEST_CASE("A trace has a named track for each lane", "[gateway][trace]") {
    for (const std::size_t at_once : {1, 2, 100}) {
        const auto events = trace_of({{TimePoint(2ms), "engine", "plan", 3, 0, 1500ns},
                                      {TimePoint(1ms), "io-0", "route", 1, 0, 20us},
                                      {TimePoint(4ms + 5ns), "engine", "mark"}},
                                     at_once);
        const auto names = of_phase(events, "M");
        REQUIRE(names.size() == 2);
        CHECK(names[0].at("args").at("name").as_string() == "io-0");
        CHECK(names[1].at("args").at("name").as_string() == "engine");
        const auto spans = of_phase(events, "X");
        REQUIRE(spans.size() == 2);
        CHECK(name_of(spans[1]) == "plan");
        CHECK(spans[1].at("tid") == names[1].at("tid"));
        CHECK(spans[1].at("ts").to_number<double>() == 2000);
        CHECK(spans[1].at("dur").to_number<double>() == 1.5);
        CHECK(spans[1].at("args").at("live_requests") == 3);
        const auto moments = of_phase(events, "i");
        REQUIRE(moments.size() == 1);
        CHECK(moments[0].at("ts").to_number<double>() == Approx(4000.005));
    }
    CHECK(trace_of({}, 10).empty());
}

TEST_CASE("A request's phases follow each other; one that lives has no end yet",
          "[gateway][trace]") {
    runtime::Trace noted(100);
    actors::Submit submit;
    submit.request = 0x2a;
    submit.prompt = {1, 2, 3};
    std::vector<actors::SchedulerMessage> messages;
    messages.emplace_back(std::move(submit));
    submit.request = 7;
    messages.emplace_back(std::move(submit));
    trace_messages(noted, "executor", TimePoint(10ms), messages);
    actors::Delivery delivery;
    actors::Finished finished;
    finished.request = 0x2a;
    finished.reason = actors::FinishReason::length;
    finished.queued_ns = 1'000'000;
    finished.prefill_ns = 2'000'000;
    finished.decode_ns = 5'000'000;
    finished.usage = {.prompt_tokens = 3, .generated_tokens = 9};
    delivery.events.push_back(finished);
    trace_endings(noted, TimePoint(18ms), delivery);

    const auto events = trace_of(noted.events(), 100);
    std::map<std::string, std::pair<double, double>> spans;  // of 0x2a: begin and end
    for (const auto& begin : of_phase(events, "b"))
        if (begin.at("id").as_string() == "0x2a")
            spans[std::string(name_of(begin))].first = begin.at("ts").to_number<double>();
    for (const auto& end : of_phase(events, "e"))
        spans[std::string(name_of(end))].second = end.at("ts").to_number<double>();
    CHECK(spans == std::map<std::string, std::pair<double, double>>{{"queue", {10'000, 11'000}},
                                                                    {"prefill", {11'000, 13'000}},
                                                                    {"decode", {13'000, 18'000}}});
    std::string live;
    for (const auto& begin : of_phase(events, "b"))
        if (begin.at("id").as_string() == "0x7") live += name_of(begin);
    CHECK(live == "live");
    CHECK(of_phase(events, "n").size() == 3);  // two arrivals and an end
}

TEST_CASE("Every lane is asked on its own thread, for as long ago as was asked for",
          "[gateway][trace]") {
    const runtime::SteadyClock clock;
    const auto report = [](const runtime::LaneFailure& failure) { FAIL(failure.what); };
    runtime::NamedThread io("io-0", clock, report);
    runtime::NamedThread engine("engine", clock, report);
    engine.note("new");
    engine.trace().record({clock.now() - 20s, "engine", "old"});
    engine.trace().record({clock.now() - 20s, "engine", "long", 0, 0, 15s});
    io.note("mine");
    engine.start();
    const HttpReply reply = ask(io, {&io, &engine}, "seconds=8");
    engine.finish();
    engine.join();
    CHECK(reply.status == 200);
    std::string names;
    const json::value dump = json::parse(reply.body);
    for (const json::value& event : dump.at("traceEvents").as_array())
        if (event.at("ph") != "M") names += std::string(name_of(event.as_object())) + " ";
    CHECK(names == "long new mine ");
}

TEST_CASE("A trace is asked for by whole seconds", "[gateway][trace]") {
    const runtime::SteadyClock clock;
    const auto report = [](const runtime::LaneFailure& failure) { FAIL(failure.what); };
    for (const char* query :
         {"seconds=0", "seconds=3601", "seconds=", "seconds=1.5", "seconds=x"}) {
        CAPTURE(query);
        runtime::NamedThread io("io-0", clock, report);
        CHECK(ask(io, {&io}, query).status == 400);
    }
    runtime::NamedThread io("io-0", clock, report);
    CHECK(ask(io, {&io}, "").status == 200);
}
