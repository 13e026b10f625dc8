#include "gateway/http_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gateway/http_exchange_call.hpp"
#include "gateway/json_document.hpp"
#include "gateway/wire_errors.hpp"
#include "runtime/base/assert.hpp"

namespace troupe::gateway {
namespace {

class ReplyCall final : public HttpCall {
 public:
    explicit ReplyCall(HttpReply reply) : reply_(std::move(reply)) {}
    [[nodiscard]] HttpExchange::Started state() const override {
        return HttpExchange::Started::reply;
    }
    [[nodiscard]] HttpReply take_reply() override { return std::move(reply_); }
    [[nodiscard]] bool next_chunk(std::string&) override { return false; }
    [[nodiscard]] bool finished() const override { return true; }
    [[nodiscard]] std::size_t pending_bytes() const override { return 0; }
    void disconnect() override {}

 private:
    HttpReply reply_;
};

}  // namespace

std::unique_ptr<HttpCall> make_reply_call(HttpReply reply) {
    return std::make_unique<ReplyCall>(std::move(reply));
}

HttpHeaders rate_limit_headers(const actors::RateLimits::State& state) {
    HttpHeaders headers;
    const auto add = [&headers](std::string_view what, const actors::RateLimits::Budget& budget) {
        if (budget.limit == 0) return;
        headers.emplace_back(fmt::format("x-ratelimit-limit-{}", what),
                             std::to_string(budget.limit));
        headers.emplace_back(fmt::format("x-ratelimit-remaining-{}", what),
                             std::to_string(budget.remaining));
        headers.emplace_back(fmt::format("x-ratelimit-reset-{}", what),
                             fmt::format("{}ms", budget.reset_ms));
    };
    add("requests", state.requests);
    add("tokens", state.tokens);
    return headers;
}

std::optional<std::string_view> query_value(std::string_view query, std::string_view name) {
    while (!query.empty()) {
        const auto end = std::min(query.find('&'), query.size());
        const auto pair = query.substr(0, end);
        query.remove_prefix(std::min(end + 1, query.size()));
        if (pair.starts_with(name) && pair.substr(name.size()).starts_with('='))
            return pair.substr(name.size() + 1);
    }
    return std::nullopt;
}

HttpReply json_reply(std::string body) {
    return {.status = 200, .body = std::move(body), .headers = {}};
}

HttpReply error_reply(const actors::RequestError& error) {
    HttpReply reply{.status = error.status, .body = error_body(error), .headers = {}};
    if (std::string seconds = retry_after_seconds(error); !seconds.empty())
        reply.headers.emplace_back("Retry-After", std::move(seconds));
    return reply;
}

class HttpExchange::Impl {
 public:
    Impl(actors::SessionHub& hub, const ServedModel& served, ClientContext context,
         std::function<void()> output_ready)
        : client_(std::move(context)),
          output_ready_(std::move(output_ready)),
          context_{hub, served, client_, output_ready_} {
        TROUPE_ASSERT(client_.authenticated, "the transport refuses strangers before this");
    }

    void start(HttpRoute route, std::string_view body, std::string_view id,
               std::string_view query) {
        TROUPE_ASSERT(call_ == nullptr, "an exchange is started once");
        if (!is_utf8(id) || !is_utf8(query)) {  // errors quote them
            call_ = make_reply_call(
                error_reply(invalid_parameter("path", "The address is not UTF-8.")));
        } else if (body.size() > context_.served.limits.body_bytes_max) {
            call_ = make_reply_call(error_reply(
                {.status = 413,
                 .code = "message_too_large",
                 .message = fmt::format("The body has {} bytes, but may have {}.", body.size(),
                                        context_.served.limits.body_bytes_max),
                 .param = {}}));
        } else if (route == HttpRoute::chat_completions || route == HttpRoute::completions) {
            call_ = make_completion_call(context_, route, body);
        } else if (route == HttpRoute::responses) {
            call_ = make_responses_call(context_, body);
        } else {
            call_ = make_json_call(context_, {route, body, id, query});
        }
    }

    [[nodiscard]] HttpCall& call() const {
        TROUPE_ASSERT(call_ != nullptr, "start() comes first");
        return *call_;
    }
    void disconnect() {
        if (call_) call_->disconnect();
    }

 private:
    const ClientContext client_;
    const std::function<void()> output_ready_;
    const HttpCallContext context_;
    std::unique_ptr<HttpCall> call_;
};

HttpExchange::HttpExchange(actors::SessionHub& hub, const ServedModel& served,
                           ClientContext context, std::function<void()> output_ready)
    : impl_(std::make_unique<Impl>(hub, served, std::move(context), std::move(output_ready))) {}

HttpExchange::~HttpExchange() {
    impl_->disconnect();
}

HttpExchange::Started HttpExchange::start(HttpRoute route, std::string_view body,
                                          std::string_view id, std::string_view query) {
    impl_->start(route, body, id, query);
    return impl_->call().state();
}

HttpExchange::Started HttpExchange::state() const {
    return impl_->call().state();
}

HttpReply HttpExchange::take_reply() {
    return impl_->call().take_reply();
}

bool HttpExchange::next_chunk(std::string& out) {
    return impl_->call().next_chunk(out);
}

bool HttpExchange::finished() const {
    return impl_->call().finished();
}

std::size_t HttpExchange::pending_bytes() const {
    return impl_->call().pending_bytes();
}

void HttpExchange::on_disconnect() {
    impl_->disconnect();
}

}  // namespace troupe::gateway
