#include "gateway/wire_client_event.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gateway/json_writer.hpp"
#include "gateway/wire_messages.hpp"
#include "gateway/wire_params.hpp"

namespace troupe::gateway {
namespace {

constexpr std::size_t kEventIdBytesMax = 512;
constexpr std::size_t kMetadataBytesMax = 32 << 10;
constexpr std::size_t kEchoedBytesMax = 256 << 10;
constexpr std::size_t kPingBytesMax = 256;

// Copies a field as JSON text, so that the response object shows it as it came.
WireResult<> echo(const JsonFields& fields, std::string_view name, std::size_t bytes_max,
                  std::string& target) {
    const auto value = fields.find(name);
    if (!value) return {};
    std::string text = simdjson::minify(*value);
    if (text.size() > bytes_max)
        return invalid_parameter(name, fmt::format("{} has {} bytes, but must have at most {}.",
                                                   name, text.size(), bytes_max));
    target = std::move(text);
    return {};
}

// The same for a string that must be one, or null.
WireResult<> echo_string(const JsonFields& fields, std::string_view name, std::string& target) {
    std::optional<std::string> value;
    TROUPE_TRY_ASSIGN(value, fields.string(name));
    if (!value) return {};
    if (value->size() > kEventIdBytesMax)
        return invalid_parameter(name, fmt::format("{} has {} bytes, but must have at most {}.",
                                                   name, value->size(), kEventIdBytesMax));
    target.clear();
    append_json_string(target, *value);
    return {};
}

WireResult<> read_echoed(const JsonFields& fields, const ServedModel& served,
                         actors::EchoedFields& echoed) {
    echoed.model = served.id;
    struct Raw {
        std::string_view name;
        std::size_t bytes_max;
        std::string& target;
    };
    const Raw raws[] = {
        {"tools", kEchoedBytesMax, echoed.tools},
        {"tool_choice", kMetadataBytesMax, echoed.tool_choice},
        {"text", kEchoedBytesMax, echoed.text},
        {"reasoning", kMetadataBytesMax, echoed.reasoning},
        {"metadata", kMetadataBytesMax, echoed.metadata},
    };
    for (const Raw& raw : raws) {
        if (auto done = echo(fields, raw.name, raw.bytes_max, raw.target); !done) return done;
    }
    // Clients look into text.format whatever else they sent there.
    if (const auto text = fields.find("text");
        text && text->at_key("format").error() != simdjson::SUCCESS)
        echoed.text = actors::EchoedFields().text;
    for (const auto& [name, target] :
         {std::pair<std::string_view, std::string*>{"safety_identifier", &echoed.safety_identifier},
          {"prompt_cache_key", &echoed.prompt_cache_key},
          {"service_tier", &echoed.service_tier}}) {
        if (auto done = echo_string(fields, name, *target); !done) return done;
    }
    std::optional<std::int64_t> calls;
    TROUPE_TRY_ASSIGN(calls, fields.integer("max_tool_calls", 0, 1 << 20));
    if (calls) echoed.max_tool_calls = std::to_string(*calls);
    std::optional<bool> parallel;
    TROUPE_TRY_ASSIGN(parallel, fields.boolean("parallel_tool_calls"));
    if (parallel) echoed.parallel_tool_calls = *parallel ? "true" : "false";
    return {};
}

// The shapes of fields that are only echoed, and of those that this server cannot honour: to ignore
// a wish for structured output would be a lie.
WireResult<> check_shapes(const JsonFields& fields) {
    simdjson::dom::array list;
    simdjson::dom::object object;
    if (const auto tools = fields.find("tools"); tools && tools->get(list) != simdjson::SUCCESS)
        return invalid_parameter("tools",
                                 fmt::format("tools is {}, but must be a list.", excerpt(*tools)));
    for (const std::string_view name : {"metadata", "text", "reasoning"}) {
        if (const auto value = fields.find(name); value && value->get(object) != simdjson::SUCCESS)
            return invalid_parameter(
                name, fmt::format("{} is {}, but must be an object.", name, excerpt(*value)));
    }
    if (const auto text = fields.find("text")) {
        std::string_view type;
        if (text->at_pointer("/format/type").get(type) == simdjson::SUCCESS && type != "text")
            return unsupported("text.format.type",
                               fmt::format("text.format.type is \"{}\"; this server writes plain "
                                           "text only.",
                                           type.substr(0, 40)));
    }
    for (const std::string_view name : {"conversation", "prompt"}) {
        if (fields.has(name))
            return unsupported(name, fmt::format("{} is not supported; send the messages as "
                                                 "input, or previous_response_id.",
                                                 name));
    }
    return {};
}

// Everything of a create but stream_id and event_id.
WireResult<> read_create(const JsonFields& fields, const ServedModel& served, WireCreate& create) {
    actors::CreateRequest& request = create.request;
    if (auto known = check_model(fields, served); !known) return known;
    if (auto fine = check_shapes(fields); !fine) return fine;
    WireParams params;
    TROUPE_TRY_ASSIGN(params, read_params(fields, served, Door::responses));
    if (params.answers != 1)
        return unsupported("n", "A response has one answer; use /v1/chat/completions for n > 1.");
    if (params.candidates != 1)
        return unsupported("best_of",
                           "A response is not chosen among several; use "
                           "/v1/chat/completions for best_of.");
    request.params = std::move(params.params);
    request.drop_old_turns = params.drop_old_turns;
    create.seed_given = params.seed_given;
    create.deadline = params.deadline;

    TROUPE_TRY_ASSIGN(request.instructions, fields.string("instructions"));
    if (request.instructions) {
        request.echoed.instructions.clear();
        append_json_string(request.echoed.instructions, *request.instructions);
    }
    std::optional<std::string> previous;
    TROUPE_TRY_ASSIGN(previous, fields.string("previous_response_id"));
    request.previous_response_id = previous.value_or("");
    if (const auto input = fields.find("input")) {
        TROUPE_TRY_ASSIGN(request.input, read_response_input(*input));
    }
    if (request.input.empty() && request.previous_response_id.empty() && !request.instructions)
        return invalid_parameter("input", "input is absent or empty; there is nothing to answer.");

    std::optional<bool> flag;
    TROUPE_TRY_ASSIGN(flag, fields.boolean("generate"));
    request.generate = flag.value_or(true);
    TROUPE_TRY_ASSIGN(flag, fields.boolean("store"));
    request.store = flag.value_or(true);
    TROUPE_TRY_ASSIGN(flag, fields.boolean("background"));
    request.background = flag.value_or(false);
    if (request.background && !request.store)
        return invalid_parameter("background", "background is true, but needs store to be true.");
    TROUPE_TRY_ASSIGN(flag, fields.boolean("stream"));
    create.stream = flag.value_or(false);
    return read_echoed(fields, served, request.echoed);
}

WireResult<std::optional<std::string>> read_stream_id(const JsonFields& fields) {
    const auto value = fields.find("stream_id");
    if (!value) return std::optional<std::string>();
    std::string_view text;
    if (value->get(text) == simdjson::SUCCESS && is_stream_id(text))
        return std::optional<std::string>(text);
    return actors::RequestError{
        .status = 400,
        .code = "invalid_stream_id",
        .message = fmt::format("stream_id is {}, but must be 1 to 256 of A-Z a-z 0-9 _ . -",
                               excerpt(*value)),
        .param = "stream_id"};
}

// Ids are echoed in errors whatever else is wrong, so a bad one is dropped rather than refused.
std::string read_event_id(const JsonFields& fields) {
    const auto id = fields.string("event_id");
    if (!id || !*id || (*id)->size() > kEventIdBytesMax) return {};
    return **id;
}

ClientEvent create_event(const JsonFields& fields, const ServedModel& served) {
    const std::string event_id = read_event_id(fields);
    auto stream_id = read_stream_id(fields);
    if (!stream_id) return RefusedMessage{stream_id.error(), event_id, false};
    WireCreate create;
    if (auto read = read_create(fields, served, create); !read)
        return RefusedCreate{*stream_id, event_id, read.error()};
    create.request.stream_id = *stream_id;
    create.request.event_id = event_id;
    return create;
}

ClientEvent resume_event(const JsonFields& fields) {
    actors::ResumeRequest resume;
    resume.event_id = read_event_id(fields);
    const auto refused = [&](actors::RequestError error) {
        return RefusedMessage{std::move(error), resume.event_id, false};
    };
    auto stream_id = read_stream_id(fields);
    if (!stream_id) return refused(stream_id.error());
    resume.stream_id = *stream_id;
    auto response_id = fields.string("response_id");
    if (!response_id) return refused(response_id.error());
    resume.response_id = response_id->value_or("").substr(0, kEventIdBytesMax);
    auto after = fields.integer("starting_after", -1, std::int64_t{1} << 40);
    if (!after) return refused(after.error());
    resume.next_sequence = static_cast<std::uint64_t>(after->value_or(-1) + 1);
    auto mode = fields.string("mode");
    if (!mode) return refused(mode.error());
    resume.snapshot = mode->value_or("replay") == "snapshot";
    if (!resume.snapshot && mode->value_or("replay") != "replay")
        return refused(invalid_parameter(
            "mode", fmt::format("mode is \"{}\", but must be \"replay\" or \"snapshot\".",
                                (*mode)->substr(0, 40))));
    return resume;
}

ClientEvent cancel_event(const JsonFields& fields) {
    actors::CancelRequest cancel;
    cancel.event_id = read_event_id(fields);
    auto stream_id = read_stream_id(fields);
    if (!stream_id) return RefusedMessage{stream_id.error(), cancel.event_id, false};
    cancel.stream_id = *stream_id;
    auto response_id = fields.string("response_id");
    if (!response_id) return RefusedMessage{response_id.error(), cancel.event_id, false};
    cancel.response_id = response_id->value_or("").substr(0, kEventIdBytesMax);
    return cancel;
}

ClientEvent other_event(const std::string& type, const JsonFields& fields) {
    const std::string event_id = read_event_id(fields);
    if (type == "troupe:ping") {
        const auto t = fields.find("t");
        std::string t_json = t ? std::string(simdjson::minify(*t)) : "null";
        if (t_json.size() > kPingBytesMax)
            return RefusedMessage{invalid_parameter("t", "t is longer than 256 bytes."), event_id,
                                  false};
        return WirePing{std::move(t_json)};
    }
    if (type == "troupe:auth") {
        auto token = fields.string("token");
        if (!token) return RefusedMessage{token.error(), event_id, false};
        return WireAuth{token->value_or("")};
    }
    if (type == "response.steer") {
        auto stream_id = read_stream_id(fields);
        if (!stream_id) return RefusedMessage{stream_id.error(), event_id, false};
        auto response_id = fields.string("response_id");
        if (!response_id) return RefusedMessage{response_id.error(), event_id, false};
        return WireSteer{*stream_id, response_id->value_or("").substr(0, kEventIdBytesMax),
                         event_id};
    }
    return RefusedMessage{
        actors::RequestError{
            .status = 400,
            .code = "unknown_event_type",
            .message = type.empty() ? std::string("The message has no type.")
                                    : fmt::format("\"{}\" is no event that this server knows.",
                                                  type.substr(0, 60)),
            .param = "type"},
        event_id, type.empty()};
}

ClientEvent event_of(const JsonFields& fields, const ServedModel& served) {
    auto type = fields.string("type");
    if (!type) return RefusedMessage{type.error(), read_event_id(fields), true};
    const std::string name = type->value_or("");
    if (name == "response.create") return create_event(fields, served);
    if (name == "response.cancel") return cancel_event(fields);
    if (name == "troupe:response.resume") return resume_event(fields);
    return other_event(name, fields);
}

}  // namespace

bool is_stream_id(std::string_view text) {
    return !text.empty() && text.size() <= 256 && std::all_of(text.begin(), text.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '.' || c == '-';
    });
}

ClientEvent read_client_event(std::string_view text, const ServedModel& served) {
    ClientEvent event;
    const auto read =
        with_json(text, served.limits.depth_max, [&](const JsonElement& root) -> WireResult<> {
            simdjson::dom::object object;
            if (root.get(object) != simdjson::SUCCESS)
                return actors::RequestError{.status = 400,
                                            .code = "invalid_json",
                                            .message = "A message must be one JSON object.",
                                            .param = {}};
            event = event_of(JsonFields(object), served);
            return {};
        });
    if (!read) return RefusedMessage{read.error(), {}, true};
    return event;
}

WireResult<WireCreate> read_create_body(std::string_view body, const ServedModel& served) {
    WireCreate create;
    const auto read =
        with_json(body, served.limits.depth_max, [&](const JsonElement& root) -> WireResult<> {
            auto fields = JsonFields::of(root, "body");
            if (!fields) return fields.error();
            return read_create(*fields, served, create);
        });
    if (!read) return read.error();
    return create;
}

}  // namespace troupe::gateway
