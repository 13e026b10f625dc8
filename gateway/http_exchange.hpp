// One HTTP request that concerns the model, transport aside: a completion, a response, or one of
// the small JSON routes. Lives on an io thread; sends Submit and Cancel to the scheduler through
// its hub. Like ClientStream it is pulled from: bytes are made when the socket can take them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gateway/client_stream.hpp"

namespace troupe::gateway {

enum class HttpRoute : std::uint8_t {
    chat_completions,       // POST /v1/chat/completions
    completions,            // POST /v1/completions
    responses,              // POST /v1/responses
    response_get,           // GET /v1/responses/{id}
    response_delete,        // DELETE /v1/responses/{id}
    response_input_items,   // GET /v1/responses/{id}/input_items
    response_cancel,        // POST /v1/responses/{id}/cancel
    response_input_tokens,  // POST /v1/responses/input_tokens
    tokenize,               // POST /tokenize
    detokenize,             // POST /detokenize
    apply_template,         // POST /apply-template
    tokenizer_info,         // GET /tokenizer_info
    models,                 // GET /v1/models
    model_get,              // GET /v1/models/{id}
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpReply {
    unsigned status = 200;
    std::string body;
    std::string content_type = "application/json";
    HttpHeaders headers;  // besides content type and length
};

// x-ratelimit-{limit,remaining,reset}-{requests,tokens}, of the limits that there are.
[[nodiscard]] HttpHeaders rate_limit_headers(const actors::RateLimits::State& state);

class HttpExchange {
 public:
    // As ClientStream's; `context.authenticated` must be true.
    HttpExchange(actors::SessionHub& hub, const ServedModel& served, ClientContext context,
                 std::function<void()> output_ready);
    ~HttpExchange();
    HttpExchange(const HttpExchange&) = delete;
    HttpExchange& operator=(const HttpExchange&) = delete;

    enum class Started : std::uint8_t {
        reply,      // take_reply() has the whole answer now
        undecided,  // after output_ready: ask state() again; a refusal may still be a plain reply
        stream,     // 200, text/event-stream: send headers, pull next_chunk() until finished()
    };

    // `id` is the path's {id} where the route has one; `query` what follows the question mark.
    Started start(HttpRoute route, std::string_view body, std::string_view id = {},
                  std::string_view query = {});

    // What `start` would say now. It goes from undecided to reply or stream once and stays.
    [[nodiscard]] Started state() const;

    // The whole answer; once, in state `reply`.
    [[nodiscard]] HttpReply take_reply();

    // In state `stream`: appends the server-sent events that are ready; false where none is.
    [[nodiscard]] bool next_chunk(std::string& out);

    // The last byte of the stream has been handed out.
    [[nodiscard]] bool finished() const;

    [[nodiscard]] std::size_t pending_bytes() const;

    // The client is gone: everything in flight is cancelled. Idempotent; the destructor calls it.
    void on_disconnect();

 private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace troupe::gateway
