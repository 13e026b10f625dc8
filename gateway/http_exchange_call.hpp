// One HTTP request at work, whatever its route: what HttpExchange drives. Lives on an io thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "actors/hub.hpp"
#include "gateway/http_exchange.hpp"
#include "gateway/json_document.hpp"
#include "gateway/served_model.hpp"

namespace troupe::gateway {

class HttpCall {
 public:
    virtual ~HttpCall() = default;
    [[nodiscard]] virtual HttpExchange::Started state() const = 0;
    [[nodiscard]] virtual HttpReply take_reply() = 0;
    [[nodiscard]] virtual bool next_chunk(std::string& out) = 0;
    [[nodiscard]] virtual bool finished() const = 0;
    [[nodiscard]] virtual std::size_t pending_bytes() const = 0;
    virtual void disconnect() = 0;
};

// What a call works with; all of it outlives the call.
struct HttpCallContext {
    actors::SessionHub& hub;
    const ServedModel& served;
    const ClientContext& client;
    const std::function<void()>& output_ready;
};

// A reply that is there at once.
[[nodiscard]] std::unique_ptr<HttpCall> make_reply_call(HttpReply reply);
[[nodiscard]] HttpReply json_reply(std::string body);  // 200
[[nodiscard]] HttpReply error_reply(const actors::RequestError& error);

// POST /v1/responses
[[nodiscard]] std::unique_ptr<HttpCall> make_responses_call(const HttpCallContext& context,
                                                            std::string_view body);
// POST /v1/chat/completions and /v1/completions
[[nodiscard]] std::unique_ptr<HttpCall> make_completion_call(const HttpCallContext& context,
                                                             HttpRoute route,
                                                             std::string_view body);

// The value of `name` in a query string, as it stands there.
[[nodiscard]] std::optional<std::string_view> query_value(std::string_view query,
                                                          std::string_view name);

struct JsonRequest {
    HttpRoute route = HttpRoute::models;
    std::string_view body;
    std::string_view id;
    std::string_view query;
};

// GET /v1/responses/{id}?stream=true&starting_after=3
[[nodiscard]] WireResult<actors::ResumeRequest> read_resume(const JsonRequest& request);
[[nodiscard]] std::unique_ptr<HttpCall> make_resume_call(const HttpCallContext& context,
                                                         actors::ResumeRequest resume);

// The small JSON routes, all others: about the model, or about stored responses.
[[nodiscard]] std::unique_ptr<HttpCall> make_json_call(const HttpCallContext& context,
                                                       const JsonRequest& request);
[[nodiscard]] std::unique_ptr<HttpCall> make_stored_call(const HttpCallContext& context,
                                                         const JsonRequest& request);

// The reply at once, or from a helper thread where there is much text to work on. `make_reply` owns
// what it uses and touches nothing that belongs to the io thread.
[[nodiscard]] std::unique_ptr<HttpCall> make_maybe_later_call(
    const HttpCallContext& context, std::size_t bytes, std::function<HttpReply()> make_reply);

}  // namespace troupe::gateway
