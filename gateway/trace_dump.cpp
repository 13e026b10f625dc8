#include "gateway/trace_dump.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <charconv>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "actors/engine_trace.hpp"
#include "gateway/admission.hpp"
#include "gateway/http_exchange_call.hpp"
#include "gateway/json_writer.hpp"
#include "gateway/signal.hpp"

namespace troupe::gateway {
namespace {

namespace asio = boost::asio;
using runtime::TraceEvent;
using std::chrono::seconds;

constexpr std::int64_t kSecondsDefault = 10;
constexpr std::int64_t kSecondsMax = 3600;
constexpr std::chrono::milliseconds kPatience{2000};
constexpr std::size_t kEventsAtOnce = 500;  // some 100 µs of writing

// What an event's two numbers are called; empty: it has none.
struct ArgumentNames {
    std::string_view event;
    std::string_view first;
    std::string_view second;
};
constexpr std::array kArguments{
    ArgumentNames{"plan", "live_requests", ""},    ArgumentNames{"compute", "step", "sequences"},
    ArgumentNames{"route", "messages", ""},        ArgumentNames{"submit", "", "prompt_tokens"},
    ArgumentNames{"prefill", "", "prompt_tokens"}, ArgumentNames{"decode", "", "tokens"},
};

void append_arguments(std::string& out, const TraceEvent& event) {
    const auto* const names =
        std::find_if(kArguments.begin(), kArguments.end(),
                     [&](const ArgumentNames& a) { return a.event == event.name; });
    JsonObject arguments(out);
    if (names != kArguments.end() && !names->first.empty())
        arguments.integer(names->first, event.first);
    if (names != kArguments.end() && !names->second.empty())
        arguments.integer(names->second, event.second);
    arguments.close();
}

// The format counts in microseconds, with decimals.
void append_us(std::string& out, std::int64_t ns) {
    fmt::format_to(std::back_inserter(out), "{}.{:03}", ns / 1000, ns % 1000);
}

std::int64_t begin_ns(const TraceEvent& event) {
    return event.time.time_since_epoch().count();
}

bool is_of_request(const TraceEvent& event) {
    return event.lane == actors::kRequestTrack;
}

// What the lanes have sent back so far.
struct Gathering {
    explicit Gathering(asio::any_io_executor io) : more(std::move(io)) {}
    std::vector<TraceEvent> events;
    std::size_t answers = 0;
    Signal more;
};

void ask(runtime::Lane& lane, runtime::Lane& io, std::shared_ptr<Gathering> gathering) {
    asio::post(lane.executor(), [&lane, &io, gathering = std::move(gathering)]() mutable {
        asio::post(
            io.executor(), [gathering = std::move(gathering), events = lane.trace().events()] {
                gathering->events.insert(gathering->events.end(), events.begin(), events.end());
                ++gathering->answers;
                gathering->more.notify();
            });
    });
}

std::optional<seconds> seconds_of(std::string_view query) {
    const auto text = query_value(query, "seconds");
    if (!text) return seconds(kSecondsDefault);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value < 1 ||
        value > kSecondsMax)
        return std::nullopt;
    return seconds(value);
}

}  // namespace

ChromeTrace::ChromeTrace(std::vector<TraceEvent> events) : events_(std::move(events)) {
    std::stable_sort(events_.begin(), events_.end(),
                     [](const TraceEvent& a, const TraceEvent& b) { return a.time < b.time; });
    for (const TraceEvent& event : events_)
        if (is_of_request(event) && event.name != "submit") ended_.push_back(event.first);
    std::sort(ended_.begin(), ended_.end());
}

bool ChromeTrace::append(std::string& out, std::size_t events_max) {
    if (next_ == 0) out += R"({"displayTimeUnit":"ms","traceEvents":[)";
    const std::size_t end = std::min(events_.size(), next_ + events_max);
    for (; next_ < end; ++next_) {
        const TraceEvent& event = events_[next_];
        is_of_request(event) ? append_request(out, event) : append_of_lane(out, event);
    }
    if (next_ < events_.size()) return true;
    if (out.ends_with(',')) out.pop_back();
    out += "]}";
    return false;
}

// Thread ids count from 1; the first event of a lane is preceded by the lane's name.
std::size_t ChromeTrace::track_of(std::string_view lane, std::string& out) {
    const auto found = std::find(tracks_.begin(), tracks_.end(), lane);
    if (found != tracks_.end()) return static_cast<std::size_t>(found - tracks_.begin()) + 1;
    tracks_.push_back(lane);
    fmt::format_to(std::back_inserter(out),
                   R"({{"ph":"M","name":"thread_name","pid":1,"tid":{},"args":{{"name":"{}"}}}},)",
                   tracks_.size(), lane);
    return tracks_.size();
}

void ChromeTrace::append_of_lane(std::string& out, const TraceEvent& event) {
    const std::size_t track = track_of(event.lane, out);
    const bool moment = event.took.count() == 0;
    fmt::format_to(std::back_inserter(out), R"({{"ph":"{}","name":"{}","pid":1,"tid":{},"ts":)",
                   moment ? 'i' : 'X', event.name, track);
    append_us(out, begin_ns(event));
    if (!moment) append_us(out += R"(,"dur":)", event.took.count());
    append_arguments(out += R"(,"args":)", event);
    out += "},";
}

// Phases are asynchronous slices: they overlap those of other requests.
void ChromeTrace::append_request(std::string& out, const TraceEvent& event) {
    const auto append = [&](char phase, std::string_view name, std::int64_t at_ns) {
        fmt::format_to(
            std::back_inserter(out),
            R"({{"ph":"{}","cat":"request","name":"{}","id":"{:#x}","pid":1,"tid":0,"ts":)", phase,
            name, event.first);
        append_us(out, at_ns);
        append_arguments(out += R"(,"args":)", event);
        out += "},";
    };
    if (event.took.count() > 0) {
        append('b', event.name, begin_ns(event));
        append('e', event.name, begin_ns(event) + event.took.count());
        return;
    }
    append('n', event.name, begin_ns(event));
    if (event.name == "submit" && !std::binary_search(ended_.begin(), ended_.end(), event.first))
        append('b', "live", begin_ns(event));
}

asio::awaitable<HttpReply> trace_reply(runtime::Lane& io, std::span<runtime::Lane* const> lanes,
                                       std::string_view query) {
    HttpReply reply;
    const auto last = seconds_of(query);
    if (!last) {
        reply.status = 400;
        reply.body =
            error_body(400, "invalid_parameter",
                       fmt::format("seconds must be an integer between 1 and {}", kSecondsMax));
        co_return reply;
    }
    const auto since = io.now() - *last;
    const auto gathering = std::make_shared<Gathering>(io.executor());
    for (runtime::Lane* lane : lanes)
        ask(*lane, io, gathering);
    while (gathering->answers < lanes.size() && co_await gathering->more.wait_for(kPatience)) {
    }
    auto events = std::exchange(gathering->events, {});
    std::erase_if(events, [&](const TraceEvent& e) { return e.time + e.took < since; });
    ChromeTrace trace(std::move(events));
    while (trace.append(reply.body, kEventsAtOnce))
        co_await io.yield();
    co_return reply;
}

}  // namespace troupe::gateway
