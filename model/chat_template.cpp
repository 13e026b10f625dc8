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

Result<> add_json(jinja::Heap& heap, jinja::Dict& into, std::string_view name,
                  std::string_view json) {
    if (json.empty()) return {};
    Result<jinja::Value> value = jinja::from_json(heap, json, Origin::from_user);
    if (!value) return value.error();
    into.set(heap.text(name), *value);
    return {};
}

// The role counts as written by the template: it is one of a few words, and templates make control
// tokens of it ("<|" + role + "|>").
Result<jinja::Value> make_message(jinja::Heap& heap, const ChatMessage& message) {
    if (!is_chat_role(message.role)) {
        return invalid_input(
            fmt::format("a message cannot have the role \"{}\"", log::escaped(message.role, 40)));
    }
    jinja::Dict made;
    made.set(heap.text("role"), heap.text(message.role, Origin::from_template));
    made.set(heap.text("content"), heap.text(message.content, Origin::from_user));
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
    return heap.dict(std::move(made));
}

RenderedChat with_segments(const jinja::Text& text) {
    RenderedChat made{std::string(text.bytes()), {}};
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
    return ChatTemplate(std::string(source), std::move(*compiled), std::move(bos), std::move(eos));
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
        Result<jinja::Value> one = make_message(heap, message);
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

Result<RenderedChat> ChatTemplate::render(std::span<const ChatMessage> messages,
                                          const ChatRenderOptions& options) const {
    try {
        jinja::Heap heap(heap_bytes_max);
        Result<jinja::Dict> context = make_context(heap, messages, options);
        if (!context) return context.error();
        jinja::RenderOptions rendering;
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
