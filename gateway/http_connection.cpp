#include "gateway/http_connection.hpp"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/read_size.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket/rfc6455.hpp>

#include "gateway/admission.hpp"
#include "gateway/assets.hpp"
#include "gateway/http_exchange.hpp"
#include "gateway/json_document.hpp"
#include "gateway/operations.hpp"
#include "gateway/routes.hpp"
#include "gateway/signal.hpp"
#include "gateway/spawn_connection.hpp"
#include "gateway/trace_dump.hpp"
#include "gateway/transport.hpp"
#include "gateway/websocket_connection.hpp"
#include "gateway/websocket_frames.hpp"

namespace troupe::gateway {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

using Request = http::request<http::string_body>;
using Parser = http::request_parser<http::string_body>;

constexpr std::string_view kPagePolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

std::string_view as_view(beast::string_view text) {
    return {text.data(), text.size()};
}

// What a proxy in front might read differently, so that it would take the next request's begin for
// another place (RFC 9112, 6.1 and 6.3): what is wrong with it, or nothing.
std::string_view framing_fault(const Request& request) {
    const auto length = request[http::field::content_length];
    const auto coding = request[http::field::transfer_encoding];
    const bool chunked = request.count(http::field::transfer_encoding) > 0;
    if (request.count(http::field::host) != 1 && request.version() == 11)
        return "a request has one Host";
    if (request.count(http::field::content_length) + request.count(http::field::transfer_encoding) >
        1)
        return "a body has one Content-Length or one Transfer-Encoding";
    if (chunked && (request.version() == 10 || !beast::iequals(coding, "chunked")))
        return "the only Transfer-Encoding is chunked, in HTTP/1.1";
    if (length.find_first_not_of("0123456789") != beast::string_view::npos)
        return "Content-Length is one number";
    return {};
}

class HttpConnection final : public Connection,
                             public std::enable_shared_from_this<HttpConnection> {
 public:
    HttpConnection(asio::ip::tcp::socket socket, ServerContext& context)
        : context_(context),
          stream_(std::move(socket), context.settings.tls.get()),
          signal_(stream_.get_executor()),
          address_(stream_.address()) {
        context_.metrics.connection_opened();
    }
    ~HttpConnection() override {
        context_.connections.remove(*this);
        context_.metrics.connection_closed();
    }

    [[nodiscard]] std::size_t unread_bytes() const override {
        return exchange_ ? exchange_->pending_bytes() : 0;
    }

    runtime::TimePoint tick(runtime::TimePoint now) override {
        check_deadline(now);
        return now + context_.settings.look_interval;
    }
    void keys_changed() override {}  // every request shows its key anew
    void drain() override {
        if (!busy_) abort();
    }
    void abort() override { stream_.close(); }

    asio::awaitable<void> run() {
        context_.connections.add(shared_from_this(),
                                 context_.clock.now() + context_.settings.look_interval);
        auto patience = context_.settings.handshake_timeout;
        give(patience);
        bool keep_alive = !co_await stream_.handshake();
        while (keep_alive && !context_.draining) {
            busy_ = false;
            if (!co_await read_request(patience)) break;
            busy_ = true;
            patience = context_.settings.keep_alive_timeout;
            keep_alive = co_await answer();
        }
        if (stream_.is_open()) {
            give(context_.settings.goodbye_timeout);
            co_await stream_.async_finish(as_tuple_awaitable);
        }
    }

 private:
    void check_deadline(runtime::TimePoint now) {
        if (deadline_ == runtime::TimePoint::max()) return;
        if (exchange_ && stream_.queued_bytes() != queued_bytes_) {  // it takes some of a write
            queued_bytes_ = stream_.queued_bytes();
            give(context_.settings.write_timeout);
        }
        if (now <= deadline_) return;
        if (exchange_) context_.metrics.slow_client_closed();
        wait_for_ever();
        abort();
    }
    // What is at work now has this long; tick() ends it.
    void give(std::chrono::seconds time) { deadline_ = context_.clock.now() + time; }
    void wait_for_ever() { deadline_ = runtime::TimePoint::max(); }

    // Reads one request into parser_. False where the connection is over; what was malformed has
    // been answered then.
    asio::awaitable<bool> read_request(std::chrono::seconds patience) {
        parser_.emplace();
        parser_->header_limit(static_cast<std::uint32_t>(context_.settings.header_bytes_max));
        parser_->body_limit(body_bytes_max());
        request_id_ = "req_" + random_hex(12);
        rate_headers_.clear();
        give(patience);
        auto [error, ignored] =
            co_await http::async_read_header(stream_, buffer_, *parser_, as_tuple_awaitable);
        started_ = context_.clock.now();
        if (!error) {
            if (auto early = refuse_before_body()) {
                co_await send(std::move(*early), false);
                co_return false;
            }
            if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
                http::response<http::empty_body> go_on(http::status::continue_, 11);
                co_await http::async_write(stream_, go_on, as_tuple_awaitable);
            }
            give(context_.settings.body_timeout);
            if (!parser_->is_done()) error = co_await read_body();
        }
        if (error) co_await explain_read_error(error);
        wait_for_ever();
        co_return !error;
    }

    // What http::async_read does, but for two things: what stands between chunks has a limit, and
    // the parser gets no fewer bytes of a chunked body than its shortest rest has, "0\r\n\r\n":
    // with fewer, Beast 1.81 fails an assertion of its own.
    asio::awaitable<boost::system::error_code> read_body() {
        constexpr std::size_t kChunkedRestBytesMin = 5;
        constexpr std::size_t kReadBytesMax = 65536;
        const std::size_t enough = parser_->chunked() ? kChunkedRestBytesMin : 1;
        parser_->eager(true);
        while (!parser_->is_done()) {
            if (buffer_.size() >= enough) {
                boost::system::error_code error;
                buffer_.consume(parser_->put(buffer_.data(), error));
                if (!error) continue;
                if (error != http::error::need_more) co_return error;
                if (buffer_.size() >= context_.settings.header_bytes_max)
                    co_return http::error::header_limit;
            }
            const auto [error, n] = co_await stream_.async_read_some(
                buffer_.prepare(beast::read_size(buffer_, kReadBytesMax)), as_tuple_awaitable);
            if (error == asio::error::eof) co_return http::error::partial_message;
            if (error) co_return error;
            buffer_.commit(n);
        }
        co_return boost::system::error_code();
    }

    std::uint64_t body_bytes_max() const {
        return context_.serving != nullptr ? context_.serving->model.limits.body_bytes_max
                                           : 8u << 20;
    }

    asio::awaitable<void> explain_read_error(const boost::system::error_code& error) {
        if (error == http::error::header_limit)
            co_await send(refusal(431, "invalid_request", "the headers are longer than 16 KiB"),
                          false);
        else if (error == http::error::body_limit)
            co_await send(
                refusal(413, "message_too_large",
                        fmt::format("the body is longer than {} bytes", body_bytes_max())),
                false);
        else if (error.category() == http::make_error_code(http::error::bad_method).category() &&
                 error != http::error::end_of_stream && error != http::error::partial_message)
            co_await send(refusal(400, "invalid_request", "this is not well-formed HTTP/1.1"),
                          false);
    }

    // What can be said from the head alone, before a body is read.
    std::optional<HttpReply> refuse_before_body() {
        const Request& request = parser_->get();
        if (request.target().size() > context_.settings.target_bytes_max)
            return refusal(414, "invalid_request", "the request line is longer than 8 KiB");
        if (!is_utf8(as_view(request.target())))
            return refusal(400, "invalid_request", "the address is not UTF-8");
        if (request.version() != 11 && request.version() != 10)
            return refusal(505, "invalid_request", "this server speaks HTTP/1.1");
        if (const auto coding = request[http::field::content_encoding];
            !coding.empty() && !beast::iequals(coding, "identity"))
            return refusal(415, "unsupported_media_type", "compressed bodies are not accepted");
        if (const auto fault = framing_fault(request); !fault.empty())
            return refusal(400, "invalid_request", fault);
        if (const auto expect = request[http::field::expect];
            !expect.empty() && !beast::iequals(expect, "100-continue"))
            return refusal(417, "invalid_request", "only 100-continue may be expected");
        if (request.method() == http::verb::post && !parser_->chunked() &&
            !parser_->content_length())
            return refusal(411, "invalid_request", "a POST needs a Content-Length");
        return std::nullopt;
    }

    static HttpReply refusal(unsigned status, std::string_view code, std::string_view message) {
        HttpReply reply;
        reply.status = status;
        reply.body = error_body(status, code, message);
        if (status == 503) reply.headers.emplace_back("Retry-After", "1");
        return reply;
    }

    // Answers the request in parser_. True where another may follow on this connection.
    asio::awaitable<bool> answer() {
        Request& request = parser_->get();
        const auto target = as_view(request.target());
        const auto path = target.substr(0, target.find('?'));
        const auto query = path.size() < target.size() ? target.substr(path.size() + 1) : "";
        const auto route = match_route(as_view(request.method_string()), path);
        const bool keep_alive = request.keep_alive();
        client_address_ =
            client_address(address_, forwarded_for(), context_.settings.trusted_proxies);
        const auto judgement =
            judge(facts(), route, context_.settings, context_.ephemeral_keys, context_.clock.now());

        if (route.page == Page::responses_socket && is_upgrade()) {
            co_return co_await upgrade(judgement);
        }
        if (judgement.refusal) {
            const auto& r = *judgement.refusal;
            co_return co_await send(refusal(r.status, r.code, r.message), keep_alive);
        }
        if (route.allow.empty())
            co_return co_await send(refusal(404, "not_found", fmt::format("there is no {}", path)),
                                    keep_alive);
        const bool options = request.method() == http::verb::options;
        if (options || !route.method_known)
            co_return co_await send(method_reply(options, route), keep_alive);
        if (route.page == Page::asset) co_return co_await send_asset(path, keep_alive);
        if (route.page == Page::responses_socket) {
            auto reply = refusal(426, "upgrade_required",
                                 "GET /v1/responses is a WebSocket; POST to it for HTTP");
            reply.headers.emplace_back("Upgrade", "websocket");
            co_return co_await send(std::move(reply), keep_alive);
        }
        if (route.page == Page::client_secrets) {
            auto reply = client_secret_reply(request.body(), judgement.client, context_);
            co_return co_await send(std::move(reply), keep_alive);
        }
        if (route.page == Page::trace && context_.serving != nullptr) {
            auto reply = co_await trace_reply(context_.io, context_.serving->traced, query);
            co_return co_await send(std::move(reply), keep_alive);
        }
        if (route.page != Page::none)
            co_return co_await send(operations_reply(route.page, judgement.client, context_),
                                    keep_alive);
        const bool another = co_await exchange(route, query, judgement.client, keep_alive);
        exchange_.reset();
        co_return another;
    }

    RequestFacts facts() const {
        const Request& request = parser_->get();
        return {as_view(request[http::field::host]),
                as_view(request[http::field::origin]),
                as_view(request[http::field::authorization]),
                as_view(request[http::field::cookie]),
                as_view(request[http::field::sec_websocket_protocol]),
                client_address_,
                request.method() == http::verb::options};
    }

    // All lines of X-Forwarded-For as one: a proxy may add its own below the client's.
    std::string forwarded_for() const {
        std::string all;
        const auto lines = parser_->get().equal_range("X-Forwarded-For");
        for (auto line = lines.first; line != lines.second; ++line)
            all += (all.empty() ? "" : ", ") + std::string(as_view(line->value()));
        return all;
    }

    bool is_upgrade() const { return beast::websocket::is_upgrade(parser_->get()); }

    // To OPTIONS, and to a method that the path does not know.
    static HttpReply method_reply(bool options, const RouteMatch& route) {
        HttpReply reply = options ? HttpReply{204, "", "", {}}
                                  : refusal(405, "method_not_allowed",
                                            fmt::format("this path knows {}", route.allow));
        reply.headers.emplace_back("Allow", std::string(route.allow));
        return reply;
    }

    // The socket changes hands; this object's part ends.
    asio::awaitable<bool> upgrade(const Judgement& judgement) {
        auto client = judgement.client;
        if (judgement.refusal && !judgement.explain_over_socket) {
            const auto& r = *judgement.refusal;
            co_return co_await send(refusal(r.status, r.code, r.message), false);
        }
        if (context_.serving == nullptr || context_.draining)
            co_return co_await send(
                refusal(503, "overloaded",
                        context_.draining ? "the server is shutting down" : "the model is loading"),
                false);
        if (const auto r = judge_model(client, context_.settings, context_.serving->model))
            co_return co_await send(refusal(r->status, r->code, r->message), false);
        const std::string chosen(chosen_subprotocol(facts().subprotocols));
        if (!co_await accept_websocket(chosen)) co_return false;
        context_.connections.remove(*this);
        stream_.put_back(take_buffered());
        serve_websocket({.transport = std::move(stream_),
                         .client = client,
                         .troupe_protocol = chosen == "troupe.v1",
                         .refused_credentials = judgement.refusal.has_value()},
                        context_);
        co_return false;
    }

    // Ends the handshake, of which Beast has found all but the key and the version (RFC 6455, 4.2).
    asio::awaitable<bool> accept_websocket(std::string_view subprotocol) {
        constexpr std::size_t kKeyBytes = 24;
        const Request& request = parser_->get();
        const auto key = request[http::field::sec_websocket_key];
        if (request[http::field::sec_websocket_version] != "13") {
            auto reply = refusal(426, "upgrade_required", "this server speaks WebSocket 13");
            reply.headers.emplace_back("Sec-WebSocket-Version", "13");
            co_await send(std::move(reply), false);
            co_return false;
        }
        if (key.size() != kKeyBytes) {
            co_await send(refusal(400, "invalid_request", "a Sec-WebSocket-Key has 24 characters"),
                          false);
            co_return false;
        }
        http::response<http::empty_body> response(http::status::switching_protocols, 11);
        response.set(http::field::upgrade, "websocket");
        response.set(http::field::connection, "upgrade");
        response.set(http::field::sec_websocket_accept, websocket_accept(as_view(key)));
        response.set(http::field::server, "troupe");
        if (!subprotocol.empty()) response.set(http::field::sec_websocket_protocol, subprotocol);
        give(context_.settings.handshake_timeout);
        const auto [error, n] = co_await http::async_write(stream_, response, as_tuple_awaitable);
        wait_for_ever();
        co_return !error && stream_.is_open();
    }

    // What the client has said behind its request.
    std::string take_buffered() {
        std::string bytes(static_cast<const char*>(buffer_.data().data()), buffer_.size());
        buffer_.consume(buffer_.size());
        return bytes;
    }

    asio::awaitable<bool> exchange(const RouteMatch& route, std::string_view query,
                                   const Client& client, bool keep_alive) {
        if (context_.serving == nullptr)
            co_return co_await send(refusal(503, "overloaded", "the model is loading"), keep_alive);
        if (const auto r = judge_model(client, context_.settings, context_.serving->model);
            r && uses_model(route))
            co_return co_await send(refusal(r->status, r->code, r->message), keep_alive);
        ClientContext who;
        who.principal = client.principal;
        who.connection_id = request_id_;
        const auto self = shared_from_this();
        HttpExchange& exchange = exchange_.emplace(context_.serving->hub, context_.serving->model,
                                                   std::move(who), [this] { signal_.notify(); });
        auto state = exchange.start(*route.exchange, parser_->get().body(), route.id, query);
        if (state != HttpExchange::Started::reply) watch_for_disconnect();
        while ((state = exchange.state()) == HttpExchange::Started::undecided && !gone_)
            co_await signal_.wait_for(std::chrono::hours(1));
        if (gone_) {
            exchange.on_disconnect();
            co_return false;
        }
        rate_headers_ = rate_limit_headers(context_.serving->hub.rates(client.principal));
        if (state == HttpExchange::Started::reply) {
            const bool another = co_await send(exchange.take_reply(), keep_alive);
            co_return another&& co_await stop_watching();
        }
        co_return co_await stream_events(exchange, keep_alive);
    }

    // Server-sent events until the exchange is finished or the client is gone.
    asio::awaitable<bool> stream_events(HttpExchange& exchange, bool keep_alive) {
        http::response<http::empty_body> head(http::status::ok, parser_->get().version());
        head.set(http::field::content_type, "text/event-stream");
        head.set(http::field::cache_control, "no-store");
        head.set("X-Accel-Buffering", "no");
        const bool chunked = parser_->get().version() == 11;
        add_common_headers(head, keep_alive && chunked);
        head.chunked(chunked);
        http::response_serializer<http::empty_body> serializer(head);
        auto [error, n] =
            co_await http::async_write_header(stream_, serializer, as_tuple_awaitable);
        std::string events;
        while (!error && !gone_) {
            events.clear();
            while (events.size() < (64u << 10) && exchange.next_chunk(events)) {
            }
            if (events.empty()) {
                if (exchange.finished()) break;
                if (!co_await signal_.wait_for(context_.settings.sse_comment_interval))
                    events = ": still here\n\n";
                if (events.empty()) continue;
            }
            give(context_.settings.write_timeout);
            error = co_await write_some(events, chunked);
            wait_for_ever();
        }
        if (error || gone_ || !exchange.finished()) {
            exchange.on_disconnect();
            co_return false;
        }
        if (!chunked) co_return false;
        std::tie(error, n) =
            co_await asio::async_write(stream_, http::make_chunk_last(), as_tuple_awaitable);
        co_return !error && keep_alive && co_await stop_watching();
    }

    asio::awaitable<boost::system::error_code> write_some(const std::string& bytes, bool chunked) {
        const auto body = asio::buffer(bytes);
        if (chunked) {
            auto [error, n] =
                co_await asio::async_write(stream_, http::make_chunk(body), as_tuple_awaitable);
            co_return error;
        }
        auto [error, n] = co_await asio::async_write(stream_, body, as_tuple_awaitable);
        co_return error;
    }

    // While an answer is in the making nobody reads the socket, so its end would go unnoticed.
    // Bytes of a pipelined request are kept for later and end the watch.
    void watch_for_disconnect() {
        watching_ = true;
        asio::co_spawn(
            stream_.get_executor(),
            [self = shared_from_this()]() -> asio::awaitable<void> {
                self->gone_ = !co_await self->stream_.watch();
                self->watching_ = false;
                self->signal_.notify();
            },
            asio::detached);
    }

    // Ends the watch, so that the next request's read has the socket for itself.
    asio::awaitable<bool> stop_watching() {
        if (watching_) stream_.stop_watching();
        while (watching_)
            co_await signal_.wait_for(std::chrono::seconds(1));
        co_return !gone_;
    }

    asio::awaitable<bool> send_asset(std::string_view path, bool keep_alive) {
        const Request& request = parser_->get();
        const auto asset = find_asset(path);
        if (!asset)
            co_return co_await send(refusal(404, "not_found", fmt::format("there is no {}", path)),
                                    keep_alive);
        const bool unchanged = as_view(request[http::field::if_none_match]) == asset->etag;
        http::response<http::span_body<const char>> response(
            unchanged ? http::status::not_modified : http::status::ok, request.version());
        response.set(http::field::content_type, asset->content_type);
        response.set(http::field::etag, asset->etag);
        response.set(http::field::cache_control, "no-cache");
        response.set("Content-Security-Policy", kPagePolicy);
        if (path == "/" && !cookie_value(facts().cookie, kClientCookie))
            response.set(
                http::field::set_cookie,
                fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/; Max-Age=31536000{}",
                            kClientCookie, random_hex(16), stream_.encrypted() ? "; Secure" : ""));
        if (!unchanged) response.body() = {asset->body.data(), asset->body.size()};
        add_common_headers(response, keep_alive);
        response.prepare_payload();
        co_return co_await write_response(response);
    }

    asio::awaitable<bool> send(HttpReply reply, bool keep_alive) {
        const Request& request = parser_->get();
        const unsigned version = request.version() == 10 ? 10 : 11;
        http::response<http::string_body> response;
        response.version(version);
        response.result(reply.status);
        if (!reply.content_type.empty())
            response.set(http::field::content_type, reply.content_type);
        for (const auto& [name, value] : reply.headers)
            response.insert(name, value);
        response.body() = std::move(reply.body);
        add_common_headers(response, keep_alive);
        response.prepare_payload();
        co_return co_await write_response(response);
    }

    template <class Response>
    asio::awaitable<bool> write_response(Response& response) {
        give(context_.settings.write_timeout);
        const bool keep_alive = response.keep_alive();
        boost::system::error_code error;
        std::size_t n = 0;
        if (parser_->get().method() == http::verb::head) {
            http::response_serializer<typename Response::body_type> head(response);
            std::tie(error, n) =
                co_await http::async_write_header(stream_, head, as_tuple_awaitable);
        } else {
            std::tie(error, n) = co_await http::async_write(stream_, response, as_tuple_awaitable);
        }
        wait_for_ever();
        co_return !error && keep_alive;
    }

    template <class Response>
    void add_common_headers(Response& response, bool keep_alive) {
        const auto spent = context_.clock.now() - started_;
        response.set(http::field::server, "troupe");
        response.set("X-Request-Id", request_id_);
        response.set(
            "OpenAI-Processing-Ms",
            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(spent).count()));
        for (const auto& [name, value] : rate_headers_)
            response.set(name, value);
        response.set("X-Content-Type-Options", "nosniff");
        response.set("Referrer-Policy", "no-referrer");
        if (const auto origin = parser_->get()[http::field::origin]; !origin.empty()) {
            response.set(http::field::vary, "Origin");
            if (origin_allowed(as_view(origin), as_view(parser_->get()[http::field::host]),
                               context_.settings.allow)) {
                response.set(http::field::access_control_allow_origin, origin);
                response.set(http::field::access_control_allow_headers,
                             "authorization, content-type");
                response.set(http::field::access_control_allow_methods,
                             "GET, POST, DELETE, OPTIONS");
            }
        }
        response.keep_alive(keep_alive && !context_.draining);
    }

    ServerContext& context_;
    Transport stream_;
    Signal signal_;
    beast::flat_buffer buffer_;
    std::optional<Parser> parser_;
    const std::string address_;   // the peer's
    std::string client_address_;  // of the request: a proxy's client, where it is trusted
    std::string request_id_;
    HttpHeaders rate_headers_;
    std::optional<HttpExchange> exchange_;  // of the request; while there, deadlines are of writes
    std::size_t queued_bytes_ = 0;          // when tick() last looked
    runtime::TimePoint started_{};
    runtime::TimePoint deadline_ = runtime::TimePoint::max();
    bool busy_ = false;
    bool watching_ = false;
    bool gone_ = false;
};

}  // namespace

void serve_connection(asio::ip::tcp::socket socket, ServerContext& context) {
    auto executor = socket.get_executor();
    spawn_connection(executor, std::make_shared<HttpConnection>(std::move(socket), context));
}

}  // namespace troupe::gateway
