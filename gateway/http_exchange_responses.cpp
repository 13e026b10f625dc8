// POST /v1/responses and GET /v1/responses/{id}?stream=true: a Responses session with one create or
// one resume, answered as JSON or as server-sent events.
#include <charconv>
#include <utility>

#include "gateway/client_stream_shell.hpp"
#include "gateway/http_exchange_call.hpp"
#include "gateway/json_document.hpp"
#include "gateway/wire_response.hpp"

namespace troupe::gateway {
namespace {

using Started = HttpExchange::Started;

class ResponsesCall final : public HttpCall {
 public:
    ResponsesCall(const HttpCallContext& context, WireCreate create)
        : ResponsesCall(context, create.stream, create.request.background) {
        shell_.create(std::move(create));
        advance();
    }
    ResponsesCall(const HttpCallContext& context, actors::ResumeRequest resume)
        : ResponsesCall(context, true, false) {
        shell_.tell([&](actors::Session& core) { core.resume(std::move(resume)); });
        advance();
    }

    [[nodiscard]] Started state() const override { return state_; }
    [[nodiscard]] HttpReply take_reply() override { return std::move(reply_); }
    [[nodiscard]] bool finished() const override { return finished_; }
    [[nodiscard]] std::size_t pending_bytes() const override {
        return shell_.core().pending_bytes();
    }
    void disconnect() override {
        // Who waited for the whole has no id to come back with.
        if (!stream_ && state_ == Started::undecided)
            shell_.tell([](actors::Session& core) { core.cancel({}); });
        shell_.disconnect();
    }

    [[nodiscard]] bool next_chunk(std::string& out) override {
        if (state_ != Started::stream) return false;
        actors::ServerEvent event;
        if (first_) {
            event = std::move(*first_);
            first_.reset();
        } else if (!shell_.next_event(event)) {
            return false;
        }
        out += "event: ";
        out += event_type(event);
        out += "\ndata: ";
        append_event(out, event, served_);
        out += "\n\n";
        finished_ = is_terminal(event);
        return true;
    }

 private:
    ResponsesCall(const HttpCallContext& context, bool stream, bool background)
        : served_(context.served),
          output_ready_(context.output_ready),
          stream_(stream),
          background_(background),
          shell_(context.hub, context.served, context.client.principal, [this] {
              advance();
              output_ready_();
          }) {}

    static bool is_terminal(const actors::ServerEvent& event) {
        if (std::holds_alternative<actors::StoredEnd>(event.body)) return true;
        const auto* changed = std::get_if<actors::ResponseChanged>(&event.body);
        using Kind = actors::ResponseChanged::Kind;
        return changed != nullptr &&
               (changed->kind == Kind::completed || changed->kind == Kind::incomplete ||
                changed->kind == Kind::failed);
    }

    // A stream is decided by its first event, a JSON reply by its last, or by its first where the
    // client does not want to wait.
    void advance() {
        while (state_ == Started::undecided) {
            actors::ServerEvent event;
            if (!shell_.next_event(event)) return;
            const auto* error = std::get_if<actors::ErrorEvent>(&event.body);
            if (error != nullptr) {
                reply_ = error_reply(error->error);
                state_ = Started::reply;
            } else if (stream_) {
                first_ = std::move(event);
                state_ = Started::stream;
            } else if (background_ || is_terminal(event)) {
                append_response(reply_.body, std::get<actors::ResponseChanged>(event.body).response,
                                served_);
                state_ = Started::reply;
            }
        }
    }

    const ServedModel& served_;
    const std::function<void()>& output_ready_;
    const bool stream_;
    const bool background_;
    Started state_ = Started::undecided;
    HttpReply reply_;
    std::optional<actors::ServerEvent> first_;
    bool finished_ = false;
    SessionShell shell_;
};

}  // namespace

std::unique_ptr<HttpCall> make_responses_call(const HttpCallContext& context,
                                              std::string_view body) {
    auto create = read_create_body(body, context.served);
    if (!create) return make_reply_call(error_reply(create.error()));
    return std::make_unique<ResponsesCall>(context, std::move(*create));
}

WireResult<actors::ResumeRequest> read_resume(const JsonRequest& request) {
    actors::ResumeRequest resume;
    resume.response_id = request.id;
    if (const auto after = query_value(request.query, "starting_after")) {
        const auto [end, error] =
            std::from_chars(after->data(), after->data() + after->size(), resume.next_sequence);
        if (error != std::errc() || end != after->data() + after->size())
            return invalid_parameter("starting_after",
                                     "starting_after must be a sequence number, 0 or more.");
        ++resume.next_sequence;
    }
    return resume;
}

std::unique_ptr<HttpCall> make_resume_call(const HttpCallContext& context,
                                           actors::ResumeRequest resume) {
    return std::make_unique<ResponsesCall>(context, std::move(resume));
}

}  // namespace troupe::gateway
