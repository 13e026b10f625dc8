// GET /debug/trace: what lanes have noted of late, as a file for chrome://tracing and Perfetto.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/http_exchange.hpp"
#include "runtime/lane.hpp"
#include "runtime/trace.hpp"

namespace troupe::gateway {

// The "Trace Event Format" of Chrome as JSON: a track a lane; requests, told apart by their id,
// each with a track of its own, those that still live with an open end.
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
class ChromeTrace {
 public:
    // `events` in any order; names the requests that ended in them.
    explicit ChromeTrace(std::vector<runtime::TraceEvent> events);

    // Appends up to `events_max` more events. False once all have been.
    [[nodiscard]] bool append(std::string& out, std::size_t events_max);

 private:
    [[nodiscard]] std::size_t track_of(std::string_view lane, std::string& out);
    void append_request(std::string& out, const runtime::TraceEvent& event);
    void append_of_lane(std::string& out, const runtime::TraceEvent& event);

    std::vector<runtime::TraceEvent> events_;  // oldest first
    std::vector<std::int64_t> ended_;          // requests, sorted
    std::vector<std::string_view> tracks_;
    std::size_t next_ = 0;
};

// Asks every lane for its trace, each on its own thread, and writes what has happened in the last
// `?seconds=` (10 without it, 3600 at most) of `query`. A lane that does not answer within two
// seconds, because it hangs or has ended, is left out. Runs on the lane `io` and lets others go
// between parts of the text.
[[nodiscard]] boost::asio::awaitable<HttpReply> trace_reply(runtime::Lane& io,
                                                            std::span<runtime::Lane* const> lanes,
                                                            std::string_view query);

}  // namespace troupe::gateway
