#include "model/chat_template.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "model/jinja_json.hpp"
#include "runtime/base/log.hpp"

namespace troupe::model {

namespace {

using jinja::Origin;

constexpr std::size_t heap_bytes_max = std::size_t{512} << 20;
// For the conversations that find out what a template can say.
constexpr jinja::RenderLimits trial_limits{.steps = 200'000, .output_bytes = 1 << 20, .depth = 500};

// Clients send a call's arguments as JSON text. `calls` with objects instead, where it is one.
jinja::Value with_argument_objects(jinja::Heap& heap, const jinja::Value& calls) {
    const jinja::List* list = jinja::as_list(calls);
    if (!list) return calls;
    std::vector<jinja::Value> made;
    for (const jinja::Value& call : list->items) {
        const jinja::Dict* dict = jinja::as_dict(call);
        const jinja::Value* found = dict ? dict->find("function") : nullptr;
        const jinja::Dict* function = found ? jinja::as_dict(*found) : nullptr;
        found = function ? function->find("arguments") : nullptr;
        const jinja::Text* text = found ? jinja::as_text(*found) : nullptr;
        Result<jinja::Value> arguments =
            text ? jinja::from_json(heap, text->bytes(), Origin::from_user) : jinja::Value();
        if (!text || !arguments || !jinja::as_dict(*arguments)) {
            made.push_back(call);
            continue;
        }
        jinja::Dict changed = *function;
        changed.set(heap.text("arguments"), *arguments);
        jinja::Dict outer = *dict;
        outer.set(heap.text("function"), heap.dict(std::move(changed)));
        made.push_back(heap.dict(std::move(outer)));
    }
    return heap.list(std::move(made));
}

Result<> add_json(jinja::Heap& heap, jinja::Dict& into, std::string_view name,
                  std::string_view json) {
    if (json.empty()) return {};
    Result<jinja::Value> value = jinja::from_json(heap, json, Origin::from_user);
    if (!value) return value.error();
    into.set(heap.text(name), *value);
    return {};
}

jinja::Value as_parts(jinja::Heap& heap, const jinja::Value& text) {
    jinja::Dict part;
    part.set(heap.text("type"), heap.text("text"));
    part.set(heap.text("text"), text);
    return heap.list({heap.dict(std::move(part))});
}

// The role counts as written by the template: it is one of a few words, and templates make control
// tokens of it ("<|" + role + "|>").
Result<jinja::Value> make_message(jinja::Heap& heap, const ChatMessage& message,
                                  const ChatTemplateSupport& support) {
    if (!is_chat_role(message.role)) {
        return invalid_input(
            fmt::format("a message cannot have the role \"{}\"", log::escaped(message.role, 40)));
    }
    jinja::Dict made;
    made.set(heap.text("role"), heap.text(message.role, Origin::from_template));
    const jinja::Value content = heap.text(message.content, Origin::from_user);
    made.set(heap.text("content"), support.content_as_parts ? as_parts(heap, content) : content);
    const std::array<std::pair<std::string_view, const std::string*>, 3> texts = {{
        {"name", &message.name},
        {"tool_call_id", &message.tool_call_id},
        {"reasoning_content", &message.reasoning},
    }};
    for (const auto& [key, text] : texts) {
        if (!text->empty()) made.set(heap.text(key), heap.text(*text, Origin::from_user));
    }
    if (Result<> added = add_json(heap, made, "tool_calls", message.tool_calls_json); !added) {
        return added.error();
    }
    if (const jinja::Value* calls = made.find("tool_calls");
        calls && support.arguments_as_objects) {
        made.set(heap.text("tool_calls"), with_argument_objects(heap, *calls));
    }
    return heap.dict(std::move(made));
}

RenderedChat with_segments(const jinja::Text& text) {
    RenderedChat made{std::string(text.bytes()), {}, false};
    for (std::size_t at = 0; at < text.size(); ++at) {
        const Origin origin = text.origin(at);
        if (made.segments.empty() || made.segments.back().origin != origin) {
            made.segments.push_back({at, at, origin});
        }
        made.segments.back().end = at + 1;
    }
    return made;
}

}  // namespace

bool is_chat_role(std::string_view role) {
    constexpr std::array<std::string_view, 5> roles = {"system", "user", "assistant", "tool",
                                                       "developer"};
    return std::find(roles.begin(), roles.end(), role) != roles.end();
}

Result<ChatTemplate> ChatTemplate::compile(std::string_view source, std::string bos,
                                           std::string eos) {
    Result<jinja::Template> compiled = jinja::Template::compile(source);
    if (!compiled) return compiled.error();
    ChatTemplate made(std::string(source), std::move(*compiled), std::move(bos), std::move(eos));
    made.support_ = find_support([&made](const ChatTrial& trial) -> Result<std::string> {
        made.support_ = trial.as;
        Result<RenderedChat> chat =
            made.render_as_is(trial.messages, {.tools_json = trial.tools_json}, trial_limits);
        if (!chat) return chat.error();
        return std::move(chat->text);
    });
    return made;
}

Result<jinja::Dict> ChatTemplate::make_context(jinja::Heap& heap,
                                               std::span<const ChatMessage> messages,
                                               const ChatRenderOptions& options) const {
    jinja::Dict context;
    if (!options.variables_json.empty()) {
        Result<jinja::Value> variables =
            jinja::from_json(heap, options.variables_json, Origin::from_user);
        if (!variables) return variables.error();
        const jinja::Dict* dict = jinja::as_dict(*variables);
        if (!dict) return invalid_input("the template's variables are not a JSON object");
        context = *dict;
    }
    std::vector<jinja::Value> made;
    for (const ChatMessage& message : messages) {
        Result<jinja::Value> one = make_message(heap, message, support_);
        if (!one) return one.error();
        made.push_back(*one);
    }
    context.set(heap.text("messages"), heap.list(std::move(made)));
    context.set(heap.text("add_generation_prompt"), options.add_generation_prompt);
    context.set(heap.text("bos_token"), heap.text(bos_));
    context.set(heap.text("eos_token"), heap.text(eos_));
    if (Result<> added = add_json(heap, context, "tools", options.tools_json); !added) {
        return added.error();
    }
    return context;
}

Result<> ChatTemplate::check_tools(std::span<const ChatMessage> messages,
                                   const ChatRenderOptions& options) const {
    if (!options.tools_json.empty() && !support_.tools) {
        return Error{ErrorKind::unsupported,
                     "this model's chat template has no place for tools: the model would not see "
                     "them"};
    }
    for (const ChatMessage& message : messages) {
        const bool is_lost = message.role == "tool"
                                 ? !support_.tool_results
                                 : !message.tool_calls_json.empty() && !support_.tool_calls;
        if (!is_lost) continue;
        return Error{ErrorKind::unsupported,
                     fmt::format("this model's chat template has no place for {}: the model would "
                                 "not see them",
                                 message.role == "tool" ? "messages of tools" : "tool calls")};
    }
    return {};
}

Result<RenderedChat> ChatTemplate::render(std::span<const ChatMessage> messages,
                                          const ChatRenderOptions& options) const {
    if (Result<> checked = check_tools(messages, options); !checked) return checked.error();
    const bool has_system = std::any_of(messages.begin(), messages.end(), [](const auto& message) {
        return message.role == "system" || message.role == "developer";
    });
    if (!has_system || support_.system_role) return render_as_is(messages, options, {});
    Result<RenderedChat> chat = render_as_is(with_system_in_user(messages), options, {});
    if (chat) chat->system_in_user = true;
    return chat;
}

Result<RenderedChat> ChatTemplate::render_as_is(std::span<const ChatMessage> messages,
                                                const ChatRenderOptions& options,
                                                const jinja::RenderLimits& limits) const {
    try {
        jinja::Heap heap(heap_bytes_max);
        Result<jinja::Dict> context = make_context(heap, messages, options);
        if (!context) return context.error();
        jinja::RenderOptions rendering;
        rendering.limits = limits;
        rendering.now = options.now;
        Result<jinja::Text> text = compiled_.render(heap, *context, rendering);
        if (!text) return text.error();
        return with_segments(*text);
    } catch (const jinja::TemplateError& error) {
        return invalid_input(fmt::format("the conversation is too large: {}", error.what()));
    }
}

void encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat, std::vector<TokenId>& out) {
    const std::size_t first = out.size();
    const std::string_view text = chat.text;
    std::size_t done = 0;
    for (const ChatSegment& segment : chat.segments) {
        if (segment.origin != Origin::from_template) continue;
        const std::string_view written = text.substr(0, segment.end);
        std::size_t from = segment.begin;
        while (const std::optional<ControlMatch> match = tokenizer.next_control(written, from)) {
            tokenizer.encode(text.substr(done, match->begin - done), out);
            out.push_back(match->id);
            done = from = match->end;
        }
    }
    tokenizer.encode(text.substr(done), out);
    if (!tokenizer.add_bos()) return;
    const TokenId bos = *tokenizer.bos();
    if (out.size() == first || out[first] != bos) {
        out.insert(out.begin() + static_cast<std::ptrdiff_t>(first), bos);
    }
}

}  // namespace troupe::model
