// Any bytes as what a client says over HTTP or over a WebSocket, played against a hub whose
// scheduler answers at once: refused or answered, and every answer is well-formed. Shared by the
// fuzz targets and the unit test that replays their corpus.
#pragma once

#include <array>
#include <boost/json/parse.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "gateway/client_stream.hpp"
#include "gateway/http_exchange.hpp"
#include "tests/gateway/test_wire_support.hpp"

namespace troupe::test {

inline void expect_that(bool holds, std::string_view what, std::string_view where) {
    if (!holds) throw std::logic_error(std::string(what) + ": " + std::string(where));
}

inline void expect_json(std::string_view text) {
    boost::json::parse_options options;
    options.max_depth = 256;
    boost::system::error_code error;
    boost::json::parse(text, error, {}, options);  // also checks that it is UTF-8
    expect_that(!error, "no JSON", text);
}

// The scheduler: each request gets some bytes, those of a character that does not end among them,
// and one of the possible ends; or it is refused.
class AnsweringHub : public HubFixture {
 public:
    // True where there was something to do.
    bool answer() {
        bool answered = !jobs.empty();
        run_helpers();
        collect();
        for (; answered_ < submits.size(); ++answered_) {
            answered = true;
            const std::size_t kind = answered_ % 7;
            if (submits[answered_].answers > 1) continue;  // a beam search: never gets to its end
            if (kind == 6) {
                reject(answered_, actors::Rejected::Reason::overloaded);
                continue;
            }
            if (!submits[answered_].prefill_only)
                for (const std::string_view piece : {"a", "\xc3", "\xa9\n\"", "\xf0\x9f", "z"})
                    tokens(answered_, piece);
            if (kind == 5) continue;  // still runs when its client goes
            constexpr std::array kEnds{actors::FinishReason::stop, actors::FinishReason::length,
                                       actors::FinishReason::cancelled,
                                       actors::FinishReason::deadline, actors::FinishReason::error};
            finish(answered_, kEnds[kind]);
        }
        return answered;
    }
    // Those that never get to their end do now.
    void end_the_rest() {
        for (; ended_ < answered_; ++ended_) {
            if (submits[ended_].answers > 1 || ended_ % 7 == 5)
                finish(ended_, actors::FinishReason::cancelled);
        }
    }

 private:
    std::size_t answered_ = 0;
    std::size_t ended_ = 0;
};

// Messages end in a line feed.
inline void play_websocket(std::string_view bytes) {
    AnsweringHub hub;
    gateway::ClientContext who = client();
    who.troupe_protocol = bytes.size() % 2 == 1;
    gateway::ClientStream stream(hub.hub, hub.served, who, [] {});
    std::string frame;
    const auto pull = [&] {
        do {
            while (frame.clear(), stream.next_frame(frame)) {
                expect_json(frame);
                expect_that(frame.size() < (1U << 20), "a frame too long", frame.substr(0, 80));
            }
        } while (hub.answer());
    };
    for (std::size_t messages = 0; !bytes.empty() && messages < 64; ++messages) {
        const auto end = std::min(bytes.find('\n'), bytes.size());
        const auto close = stream.on_message(bytes.substr(0, end));
        bytes.remove_prefix(std::min(end + 1, bytes.size()));
        pull();
        if (close) break;
    }
    stream.on_disconnect();
    stream.on_disconnect();
}

struct NamedRoute {
    std::string_view name;
    gateway::HttpRoute route;
};

inline constexpr std::array kNamedRoutes{
    NamedRoute{"chat", gateway::HttpRoute::chat_completions},
    NamedRoute{"completions", gateway::HttpRoute::completions},
    NamedRoute{"responses", gateway::HttpRoute::responses},
    NamedRoute{"get", gateway::HttpRoute::response_get},
    NamedRoute{"delete", gateway::HttpRoute::response_delete},
    NamedRoute{"items", gateway::HttpRoute::response_input_items},
    NamedRoute{"cancel", gateway::HttpRoute::response_cancel},
    NamedRoute{"tokens", gateway::HttpRoute::response_input_tokens},
    NamedRoute{"tokenize", gateway::HttpRoute::tokenize},
    NamedRoute{"detokenize", gateway::HttpRoute::detokenize},
    NamedRoute{"template", gateway::HttpRoute::apply_template},
    NamedRoute{"info", gateway::HttpRoute::tokenizer_info},
    NamedRoute{"models", gateway::HttpRoute::models},
    NamedRoute{"model", gateway::HttpRoute::model_get},
};

// Each line of a stream is empty, a comment, an event's name or its data.
inline void expect_events(std::string_view stream) {
    while (!stream.empty()) {
        const auto end = std::min(stream.find('\n'), stream.size());
        const auto line = stream.substr(0, end);
        stream.remove_prefix(std::min(end + 1, stream.size()));
        if (line.empty() || line.starts_with(':') || line.starts_with("event: ")) continue;
        expect_that(line.starts_with("data: "), "no line of an event stream", line);
        if (line != "data: [DONE]") expect_json(line.substr(6));
    }
}

// "ROUTE ID QUERY" in the first line, then the body.
inline void play_http(std::string_view bytes) {
    using Started = gateway::HttpExchange::Started;
    const auto line = bytes.substr(0, bytes.find('\n'));
    const auto body = bytes.substr(std::min(line.size() + 1, bytes.size()));
    const auto name = line.substr(0, line.find(' '));
    const auto rest = line.substr(std::min(name.size() + 1, line.size()));
    const auto id = rest.substr(0, rest.find(' '));
    const auto query = rest.substr(std::min(id.size() + 1, rest.size()));
    const auto* named = std::find_if(kNamedRoutes.begin(), kNamedRoutes.end(),
                                     [name](const auto& route) { return route.name == name; });
    if (named == kNamedRoutes.end()) return;

    AnsweringHub hub;
    gateway::HttpExchange exchange(hub.hub, hub.served, client(), [] {});
    auto state = exchange.start(named->route, body, id, query);
    while (state == Started::undecided && hub.answer())
        state = exchange.state();
    if (state == Started::reply) {
        const auto reply = exchange.take_reply();
        expect_that(reply.status >= 200 && reply.status < 600, "no status", line);
        expect_json(reply.body);
    } else if (state == Started::stream) {
        std::string events;
        do {
            while (exchange.next_chunk(events)) {
            }
        } while (hub.answer());
        expect_events(events);
    }
    exchange.on_disconnect();
}

}  // namespace troupe::test
